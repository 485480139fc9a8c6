//! Clients of the runtime that are not traced: who else asks, what, and how much.

use std::{cmp::Reverse, io};

use super::page::Page;
use crate::{
    correlate::{MessageRow, OtherClient},
    render::{
        escape, human,
        table::{Align, Cell, Table},
    },
};

/// Writes the section when there are any.
pub(super) fn write(page: &mut Page<'_>) -> io::Result<()> {
    let mut clients: Vec<&OtherClient> = page.snapshot.other_clients.iter().collect();
    clients.sort_by_key(|client| (Reverse(answered(client)), &client.name));
    let mut rows: Vec<(&OtherClient, &MessageRow)> = Vec::new();
    for client in clients {
        let mut of_client: Vec<&MessageRow> = client.requests.rows.iter().collect();
        of_client.sort_by_key(|row| (Reverse(row.latency.count()), &row.service, &row.method));
        rows.extend(of_client.into_iter().map(|row| (client, row)));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let all: u64 = rows.iter().map(|(_, row)| row.latency.count()).sum();
    page.section("Other clients of the runtime", &format!("{} answered", human::count(all)))?;
    let right = Align::Right;
    let mut table = Table::new(&[
        ("client", Align::Left),
        ("method", Align::Left),
        ("count", right),
        ("unanswered", right),
        ("open", right),
        ("p50", right),
        ("p99", right),
        ("max", right),
    ]);
    let shown = page.rows(rows.len());
    for (client, row) in &rows[..shown] {
        let mut cells = vec![Cell::from(name(client)), method(row).into()];
        cells.extend(super::messages::figures(row));
        table.row(cells);
    }
    table.write(page.out, page.paint, page.width)?;
    page.more(rows.len() - shown)?;
    let deaf: Vec<String> = page.snapshot.other_clients.iter().filter_map(does_not_read).collect();
    deaf[..page.rows(deaf.len())].iter().try_for_each(|text| page.indented("", text))
}

/// `crictl 4711 has left 65,562 bytes unread: its open requests wait for the client itself, not for the runtime`.
fn does_not_read(client: &OtherClient) -> Option<String> {
    let late = client.requests.open.iter().filter(|open| open.should_end());
    let unread = late.filter_map(|open| open.fact.unread).max().filter(|unread| *unread > 0)?;
    let (name, unread) = (name(client), human::count(unread.into()));
    Some(format!(
        "{name} has left {unread} bytes unread: its open requests wait for the client itself, not for the runtime"
    ))
}

fn answered(client: &OtherClient) -> u64 {
    client.requests.rows.iter().map(|row| row.latency.count()).sum()
}

/// `crictl 4711`, or `crictl ×12` of so many processes.
fn name(client: &OtherClient) -> String {
    let name = if client.name.is_empty() { "?".to_owned() } else { escape::text_to(&client.name, 15) };
    match client.pids.first() {
        Some(pid) if client.pids.len() == 1 => format!("{name} {pid}"),
        _ => format!("{name} ×{}", human::count(client.pids.len() as u64)),
    }
}

/// `ListContainers`; of services that kubelets do not know, with their name.
fn method(row: &MessageRow) -> String {
    let name = super::messages::name(&row.service, &row.method);
    let of_cri = ["RuntimeService/", "ImageService/"].iter().find_map(|service| name.strip_prefix(service));
    escape::text_to(of_cri.unwrap_or(&name), 28)
}

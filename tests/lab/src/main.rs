//! stub
use std::time::Duration;
use plegtrace_lab::*;
fn main() -> anyhow::Result<()> {
    let g: Generation = std::env::args().nth(1).unwrap().parse()?;
    let knobs = Knobs { generation: g, network: Network::Bridge, ..Knobs::default() };
    let t = std::time::Instant::now();
    let c = Containerd::start(&knobs)?;
    println!("started {:?} {:?}", t.elapsed(), c.scratch().path());
    let d = Duration::from_secs(10);
    println!("{:?}", c.client().version(d)?);
    let t = std::time::Instant::now();
    let pod = c.run_pod("p1")?;
    println!("pod {:?} {:?} shims {:?}", t.elapsed(), pod, c.shims());
    println!("{:?}", c.client().exec_sync(&pod.container, &["echo", "hi"], d)?);
    let m = c.metrics(d)?;
    for s in m.find("grpc_server_handled_total", &[("grpc_code", "OK")]) { println!("{s:?}"); }
    if std::env::args().nth(2).is_some() { std::thread::sleep(Duration::from_secs(600)); }
    let t = std::time::Instant::now();
    let (dir, id) = (c.scratch().path().to_owned(), c.scratch().id().to_owned());
    drop(c);
    println!("down {:?} {:?}", t.elapsed(), scratch::leftovers(&dir, &id));
    Ok(())
}

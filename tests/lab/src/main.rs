//! stub
use std::time::{Duration, Instant};
use plegtrace_lab::*;
fn main() -> anyhow::Result<()> {
    let g: Generation = std::env::args().nth(1).unwrap().parse()?;
    let pods: usize = std::env::args().nth(2).unwrap().parse()?;
    let knobs = Knobs { generation: g, pods, exec_probes: true, network: Network::Bridge, ..Knobs::default() };
    let t = Instant::now();
    let n = Node::start(&knobs)?;
    println!("started {:?} {:?}", t.elapsed(), n.containerd().scratch().path());
    n.wait_for_relists(5, Duration::from_secs(20))?;
    let d = Duration::from_secs(10);
    let m = n.kubelet().metrics(d)?;
    println!("relists {} sum {}", m.sum("kubelet_pleg_relist_duration_seconds_count", &[]), m.sum("kubelet_pleg_relist_duration_seconds_sum", &[]));
    let pod = n.pod("p1")?;
    let t = Instant::now();
    let h = fault::lock_hostage(n.containerd(), &pod)?;
    println!("hostage {:?} {h:?}", t.elapsed());
    println!("{:?}", n.containerd().client().list_pod_sandbox(d)?.len());
    if std::env::args().nth(3).is_some() { std::thread::sleep(Duration::from_secs(600)); }
    h.release()?;
    println!("released, list {:?}", n.containerd().client().list_containers(d)?.len());
    n.wait_for_relists(2, Duration::from_secs(20))?;
    let h = fault::lock_hostage(n.containerd(), &n.pod("p1")?)?;
    let t = Instant::now();
    let (dir, id) = (n.containerd().scratch().path().to_owned(), n.containerd().scratch().id().to_owned());
    drop(n);
    println!("down {:?} {:?}", t.elapsed(), scratch::leftovers(&dir, &id));
    drop(h);
    Ok(())
}

//! The packaged unit against decision 0040: as long as a process that runs a probed file is stuck, whoever ends plegtrace by force stops
//! every fork of the node. So nothing in the unit does. (The guests run it: `vm-tests/src/tests/service.rs`.)

use plegtrace_tests::prometheus::packaged;

/// What kills: limits that the kernel enforces by SIGKILL or by refusing memory, and ends by systemd that nobody can put off.
const KILLERS: [&str; 12] = [
    "MemoryMax",
    "MemoryLimit",
    "MemorySwapMax",
    "LimitAS",
    "LimitCPU",
    "LimitDATA",
    "LimitRSS",
    "LimitRTTIME",
    "RuntimeMaxSec",
    "FinalKillSignal",
    "TimeoutStopFailureMode",
    "TimeoutStartFailureMode",
];

/// The settings of a section, in order.
fn settings<'u>(unit: &'u str, section: &str) -> Vec<(&'u str, &'u str)> {
    let mut within = false;
    let lines = unit.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let setting = |line: &'u str| {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            within = name == section;
        }
        line.split_once('=').filter(|_| within)
    };
    lines.filter_map(setting).collect()
}

/// How a unit ends what it runs by force, and what it lacks to bound it all the same.
fn faults(unit: &str) -> Vec<String> {
    let service = settings(unit, "Service");
    // The last one counts.
    let value = |name: &str| service.iter().rfind(|(key, _)| *key == name).map(|(_, value)| *value);
    let mut faults: Vec<String> = KILLERS
        .into_iter()
        .filter_map(|name| Some(format!("{name}={} ends it by force", value(name)?)))
        .collect();
    let mut needs = |name: &str, is_so: fn(Option<&str>) -> bool, why: &str| {
        if !is_so(value(name)) {
            faults.push(format!("{name}={}: {why}", value(name).unwrap_or_default()));
        }
    };
    needs("SendSIGKILL", |it| it == Some("no"), "a stop that takes long must not end in SIGKILL");
    needs("KillSignal", |it| it.is_none_or(|it| it == "SIGTERM"), "only SIGTERM waits for whoever is stuck");
    needs("KillMode", |it| it.is_none_or(|it| it == "control-group"), "`mixed` kills, `none` stops nothing");
    needs("TimeoutStopSec", |it| it.is_some_and(|it| it != "infinity"), "a stop must not hold up a reboot");
    if value("WatchdogSec").is_some() {
        needs("WatchdogSignal", |it| it == Some("SIGTERM"), "SIGABRT, which is sent else, ends it at once");
        needs("Restart", |it| it == Some("on-failure"), "what the watchdog ends has to begin anew");
    }
    needs("MemoryHigh", |it| it.is_some(), "its memory has no bound");
    needs("OOMPolicy", |it| it == Some("continue"), "the death of its reader must not end it");
    let spared = |it: Option<&str>| it.and_then(|it| it.parse::<i32>().ok()).is_some_and(|it| it <= -900);
    needs("OOMScoreAdjust", spared, "on a node without memory the kernel kills it first");
    faults
}

/// Nothing in the packaged unit ends plegtrace by force.
#[test]
fn nobody_is_ended_by_force() {
    let unit = std::fs::read_to_string(packaged("plegtrace.service")).unwrap();
    assert_eq!(faults(&unit), [""; 0]);
}

/// Each setting that does is found, and each that is missing.
#[test]
fn each_way_to_end_it_is_found() {
    let unit = std::fs::read_to_string(packaged("plegtrace.service")).unwrap();
    for name in KILLERS {
        let worse = unit.replace("[Service]\n", &format!("[Service]\n{name}=1\n"));
        assert_eq!(faults(&worse), [format!("{name}=1 ends it by force")]);
    }
    let needed = [
        "SendSIGKILL",
        "TimeoutStopSec",
        "WatchdogSignal",
        "Restart",
        "MemoryHigh",
        "OOMPolicy",
        "OOMScoreAdjust",
    ];
    for name in needed {
        let without = unit.replace(&format!("\n{name}="), &format!("\n#{name}="));
        let found = faults(&without);
        assert!(found.len() == 1 && found[0].starts_with(name), "{name}: {found:?}");
    }
    for worse in ["KillSignal=SIGKILL", "KillMode=mixed", "TimeoutStopSec=infinity", "WatchdogSignal=SIGABRT"]
    {
        let found = faults(&unit.replace("[Install]", &format!("{worse}\n[Install]")));
        assert!(found.len() == 1 && found[0].starts_with(worse), "{found:?}");
    }
    assert_eq!(settings("[Unit]\nMemoryMax=1\n[Service]\n# MemoryMax=2\nA=b=c\n", "Service"), [("A", "b=c")]);
}

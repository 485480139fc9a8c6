//! One executable → what the planner needs to know of it, in one pass over its function table.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    input::Component,
    plan::{
        self, BinaryFacts, CATALOGUE, End, FoundFunction, FoundSite, HookRole, PlannedBinary, PlannedSite,
        Select,
    },
    target::{
        AnalysedFile, Convention, FieldPath, FileId, GoBinary, Match, Pattern, Price, Program, RefuseReason,
        Site, SiteCheck, SiteRefusal, exe_link,
    },
};

/// An executable that was analysed.
pub struct Inspected {
    /// For the planner.
    pub facts: BinaryFacts,
    /// What it was when it was analysed.
    pub id: FileId,
    /// Go version, as the toolchain calls itself.
    pub go_version: String,
    /// Version of the program, when its module says.
    pub version: Option<String>,
    /// How long it took.
    pub took: Duration,
    file: AnalysedFile,
}

impl Inspected {
    /// Analyses the program that `pid` runs now, and may replace by another one while we look.
    ///
    /// # Errors
    ///
    /// Why nothing in it can be probed.
    pub fn of_process(component: Component, pid: u32, exe: &str) -> Result<Self, RefuseReason> {
        Self::analyse(component, (pid, exe), || GoBinary::open(&exe_link(pid)))
    }

    /// Analyses a program that may not run at all now.
    ///
    /// # Errors
    ///
    /// Why nothing in it can be probed.
    pub fn of_program(component: Component, program: Program) -> Result<Self, RefuseReason> {
        let exe = program.path.display().to_string();
        Self::analyse(component, (0, &exe), || GoBinary::from_file(program.file))
    }

    /// Whatever is looked at or probed later is reached by the file that is opened here: the kernel opens the path anew for
    /// every site, and by then the process may have executed another program, or have ended.
    fn analyse(
        component: Component,
        (pid, exe): (u32, &str),
        open: impl FnOnce() -> Result<GoBinary, RefuseReason>,
    ) -> Result<Self, RefuseReason> {
        let began = std::time::Instant::now();
        let binary = open()?;
        let id = binary.id();
        let facts = BinaryFacts {
            component,
            pid,
            path: binary.file().path().unwrap_or_default(),
            exe: exe.to_owned(),
            inode: id.ino,
            kernel_dev: id.kernel_dev(),
            register_abi: binary.abi().convention == Convention::Registers,
            goid_offset: binary.abi().g.goid,
            functions: functions(component, &binary),
        };
        let info = binary.build_info();
        let go_version = info.go_version.clone();
        let version = info.main.as_ref().map(|m| m.version.clone()).filter(|v| v != "(devel)");
        Ok(Self { facts, id, go_version, version, took: began.elapsed(), file: binary.file() })
    }

    /// As if a file had been analysed.
    #[cfg(test)]
    pub(super) fn fake(facts: BinaryFacts, file: AnalysedFile) -> Self {
        let (go_version, version) = ("go1.24.4".to_owned(), Some("v1".to_owned()));
        Self { facts, id: file.id, go_version, version, took: Duration::ZERO, file }
    }

    /// The file, still open.
    pub fn file(&self) -> &AnalysedFile {
        &self.file
    }

    /// Is the file still the one that was analysed, and does it still have the expected instruction at every site?
    /// Asked right before attaching.
    ///
    /// # Errors
    ///
    /// What changed, in words.
    pub fn verify(&self, planned: &PlannedBinary) -> Result<(), String> {
        // A program that runs guards its file against writing, so the process must still be what guards it.
        let guarded = if planned.pid == 0 { planned.path.clone() } else { exe_link(planned.pid) };
        match self.file.still_same(&guarded) {
            Ok(true) => {}
            Ok(false) => return Err("the file changed since it was analysed".to_owned()),
            Err(e) => return Err(format!("cannot be re-checked, its process may have exited: {e}")),
        }
        planned.every_site().try_for_each(|site| self.verify_site(site)).map_err(|e| e.to_string())
    }

    fn verify_site(&self, site: &PlannedSite) -> Result<(), SiteRefusal> {
        let check = SiteCheck { file_offset: site.file_offset, bytes: site.expected.clone() };
        self.file.verify(&check)
    }
}

/// Where grpc-go has the structs of its streams, and what they call the number of a stream.
const TRANSPORT: &str = "google.golang.org/grpc/internal/transport";
const STREAM_NUMBER: &str = "id";

/// Every function that the catalogue wants for this component, with its sites.
fn functions(component: Component, binary: &GoBinary) -> Vec<FoundFunction> {
    let matches = binary.resolve(&patterns(component));
    let names: Vec<String> = matches.iter().map(|found| found.name.clone()).collect();
    let wanted = |found: Match| {
        let wanted = plan::wanted(CATALOGUE, component, &found.name)?;
        let taken = wanted.row.select.takes(&found.name, names.iter().map(String::as_str));
        taken.then_some((wanted, found))
    };
    let all: Vec<_> = matches.into_iter().filter_map(wanted).collect();
    let streams = Streams::of(binary, all.iter().flat_map(|(wanted, _)| stream_types(wanted)));
    all.into_iter().map(|(wanted, found)| function(binary, wanted, &found, &streams)).collect()
}

/// Of which types the streams are that a function is called with; empty where it has none.
fn stream_types(wanted: &plan::Wanted) -> &'static [&'static str] {
    match wanted.row.what {
        HookRole::Mark(mark) => mark.stream_types(),
        HookRole::Calls { .. } => &[],
    }
}

/// Where streams have their number, by type.
struct Streams(BTreeMap<&'static str, Option<FieldPath>>);

impl Streams {
    fn of(binary: &GoBinary, types: impl Iterator<Item = &'static &'static str>) -> Self {
        let types: BTreeSet<&'static str> = types.copied().collect();
        if types.is_empty() {
            return Self(BTreeMap::new());
        }
        let types = Vec::from_iter(types);
        let paths = binary.uint32_fields(TRANSPORT, &types, STREAM_NUMBER);
        Self(types.into_iter().zip(paths).collect())
    }

    /// By the first of these types that is described.
    fn number(&self, types: &[&str]) -> Option<FieldPath> {
        types.iter().find_map(|name| self.0.get(name).copied().flatten())
    }
}

fn function(binary: &GoBinary, wanted: plan::Wanted, found: &Match, streams: &Streams) -> FoundFunction {
    let words = |e: SiteRefusal| e.to_string();
    let at_call = wanted.row.at_call.and_then(|callee| only_call(binary, found, callee));
    let start = at_call.map_or_else(|| binary.start_site(found), Ok);
    let start = start.map_err(words).and_then(|site| {
        let scheduler = matches!(wanted.row.what, HookRole::Mark(mark) if mark.is_park());
        // Every goroutine passes there.
        if scheduler && site.price != Price::Emulated {
            return Err("the kernel does not emulate the instruction at its start".to_owned());
        }
        found_site(&site)
    });
    let returns = match wanted.row.what {
        HookRole::Calls { end: End::Returns(_), .. } => {
            binary.ret_sites(found).map_err(words).and_then(|sites| sites.iter().map(found_site).collect())
        }
        _ => Ok(Vec::new()),
    };
    let types = stream_types(&wanted);
    let stream = streams.number(types);
    let start = if stream.is_none() && !types.is_empty() {
        Err("the program does not describe its streams; calls are joined by time".to_owned())
    } else {
        start
    };
    let stream = stream.map(|path| (path.offset, path.then));
    FoundFunction { symbol: found.name.clone(), wanted, start, stream, returns }
}

/// The one place where a function calls another one, when there is exactly one.
fn only_call(binary: &GoBinary, function: &Match, callee: &str) -> Option<Site> {
    let mut sites = binary.call_sites(function, callee).ok()?;
    sites.pop().filter(|_| sites.is_empty())
}

fn found_site(site: &Site) -> Result<FoundSite, String> {
    let (g_source, tls_offset) =
        site.g_source.code().ok_or("the goroutine cannot be found at this instruction")?;
    Ok(FoundSite {
        file_offset: site.file_offset,
        code_offset: site.ip_minus_start_code,
        bytes: site.bytes.clone(),
        g_source,
        tls_offset,
        repeats: site.repeats(),
        ns_per_hit: site.price.ns(),
    })
}

/// The catalogue's selections as patterns of symbol names.
fn patterns(component: Component) -> Vec<Pattern> {
    let rows = CATALOGUE.iter().filter(|row| row.components.contains(&component));
    rows.flat_map(|row| match row.select {
        Select::Methods(receivers) => {
            receivers.iter().map(|receiver| Pattern::new(&format!("{receiver}.*"))).collect()
        }
        Select::Handlers { package, service } => {
            vec![Pattern::new(&format!("{package}._{service}_*_Handler"))]
        }
        Select::Function { owner, names } => {
            names.iter().map(|name| Pattern::new(&format!("{owner}.{name}"))).collect()
        }
        Select::Functions(all) => all
            .iter()
            .flat_map(|(owner, names)| names.iter().map(move |name| Pattern::new(&format!("{owner}.{name}"))))
            .collect(),
        Select::BySign { sign, with, without } => {
            [sign, with, without].map(|(owner, name)| Pattern::new(&format!("{owner}.{name}"))).to_vec()
        }
        Select::Runtime(name) => vec![Pattern::new(&format!("runtime.{name}"))],
    })
    .collect()
}

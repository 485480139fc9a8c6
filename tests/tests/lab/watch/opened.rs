//! Flame graphs of a lock in a real browser, used as a reader uses them.

use std::path::Path;

use plegtrace_tests::{browser::Browser, program};
use serde_json::Value;

/// The function that waits for the lock.
const LOCK: &str = "container.(*statusStorage).Get";
/// What the stack of a list that hangs must have, outermost first.
const CHAIN: [&str; 4] =
    ["containerd ListContainers", "[waiting]", "server.(*criService).ListContainers", LOCK];
/// Frames as the page has them.
const FRAMES: &str = r"
    self.frames_of = () => [...document.querySelectorAll('#frames > g')].map(group => {
        const rect = group.querySelector('rect'), r = rect.getBoundingClientRect();
        return {
            group, r, name: group.querySelector('title').textContent.replace(/ \([^(]*\)$/, ''),
            fill: rect.getAttribute('fill'), shown: getComputedStyle(group).display !== 'none',
        };
    });
    self.widest = name => frames_of().filter(it => it.name === name).sort((a, b) => b.r.width - a.r.width)[0];
    self.below = it => frames_of().filter(other => other.r.top >= it.r.top && other.r.left <= it.r.left + 0.5
        && other.r.right >= it.r.right - 0.5).sort((a, b) => b.r.top - a.r.top).map(other => other.name);
    self.layout = () => JSON.stringify(frames_of().filter(it => it.shown).map(it => [it.name, Math.round(it.r.width)]));
    ''";

/// A page with the picture on it.
struct Page(Browser);

impl Page {
    fn text(&mut self, expression: &str) -> String {
        self.0.evaluate(expression).unwrap().as_str().unwrap_or_else(|| panic!("{expression}")).to_owned()
    }

    fn number(&mut self, expression: &str) -> f64 {
        self.0.evaluate(expression).unwrap().as_f64().unwrap_or_else(|| panic!("{expression}"))
    }

    fn keep(&mut self, name: &str) {
        self.0.screenshot(&program::target_dir().join(format!("screenshots/flame-{name}.png"))).unwrap();
    }
}

fn open(svg: &Path) -> Option<Page> {
    let mut browser = Browser::start().unwrap()?;
    browser.open(&format!("file://{}", svg.display())).unwrap();
    browser.evaluate(FRAMES).unwrap();
    Some(Page(browser))
}

/// The picture of a stall: from the list that hangs to the parked frames; a click on a frame zooms; a search finds.
pub(super) fn is_readable(svg: &Path) {
    let Some(mut page) = open(svg) else { return };
    page.keep("stall");
    assert!(page.text("document.getElementById('legend').textContent").contains("waiting"));
    // While several lists hang, it is not certain which handler is that of the relist: they stand beside it.
    let chains = chains(&mut page);
    let is_of_list =
        |chain: &Vec<String>| ["relist, open", "ListContainers, open"].contains(&chain[1].as_str());
    assert!(chains.iter().any(|chain| is_of_list(chain) && leads_through(chain, &CHAIN)), "{chains:#?}");
    zoom(&mut page);
    search(&mut page);
    assert_eq!(page.0.errors(), [""; 0]);
}

/// The chain is there as a whole: relist, list phase, ListContainers, its handler in containerd, the parked frames.
pub(super) fn has_relist_at_lock(svg: &Path) {
    let Some(mut page) = open(svg) else { return };
    page.keep("relist");
    let of_relist = ["relist", "kubelet GetPods, list phase", "kubelet ListContainers"];
    let (whole, chains) = ([&of_relist[..], &CHAIN].concat(), chains(&mut page));
    assert!(chains.iter().any(|chain| chain[1] == "relist" && leads_through(chain, &whole)), "{chains:#?}");
}

/// What lies below each frame that waits for the lock, outermost first.
fn chains(page: &mut Page) -> Vec<Vec<String>> {
    let found = format!("frames_of().filter(it => it.name === '{LOCK}').map(below)");
    serde_json::from_value(page.0.evaluate(&found).unwrap()).unwrap()
}

/// Are these frames in the chain, in this order?
fn leads_through(chain: &[String], frames: &[&str]) -> bool {
    let mut chain = chain.iter();
    frames.iter().all(|frame| chain.any(|other| other == frame))
}

fn zoom(page: &mut Page) {
    let before = page.text("layout()");
    let whole = page.number("widest('all').r.width");
    let frame = format!("widest('{LOCK}')");
    let narrow = page.number(&format!("{frame}.r.width"));
    assert!(narrow < whole - 50.0 && narrow > 50.0, "{narrow} of {whole}");
    page.0.evaluate(&format!("void (self.zoomed = {frame}.group)")).unwrap();
    page.0.click("zoomed", None).unwrap();
    let wide = page.number("zoomed.getBoundingClientRect().width");
    assert!((wide - whole).abs() < 2.0, "{wide} of {whole}");
    let others = page
        .0
        .evaluate("frames_of().filter(it => it.shown && it.r.width < widest('all').r.width - 2).length");
    assert_eq!(others.unwrap(), 0, "only what is above and below it is left");
    page.keep("zoomed");
    page.0.click("document.getElementById('unzoom')", None).unwrap();
    assert_eq!(page.text("layout()"), before);
}

fn search(page: &mut Page) {
    let found = "frames_of().filter(it => it.fill === searchcolor).map(it => it.name)";
    let names = |page: &mut Page| page.0.evaluate(found).unwrap().as_array().unwrap().clone();
    assert!(names(page).is_empty());
    page.0.click("document.getElementById('search')", Some("statusStorage\\).Get")).unwrap();
    let marked = names(page);
    assert!(!marked.is_empty() && marked.iter().all(|name| name == LOCK), "{marked:?}");
    let all = page.0.evaluate(&format!("frames_of().filter(it => it.name === '{LOCK}').length")).unwrap();
    assert_eq!(Value::from(marked.len()), all);
    assert!(page.text("document.getElementById('matched').textContent").starts_with("Matched: "));
    page.keep("searched");
    page.0.click("document.getElementById('search')", None).unwrap();
    assert!(names(page).is_empty());
}

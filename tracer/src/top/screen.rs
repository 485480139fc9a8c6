//! [`Screen`]: the thread that has the terminal. It draws the newest picture, reads keys, and writes the recording that they ask for.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal, getpid, kill_process},
};

use super::{Picture, draw};
use crate::{chain::chain, render::human, watch::Flight};

/// How long to wait for a key before looking for a newer picture.
const TICK: Duration = Duration::from_millis(200);

/// Why there is no screen.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// Nobody could see it.
    #[error("top needs a terminal")]
    NoTerminal,
    /// It cannot be used.
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
}

/// What the two threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) picture: Mutex<Picture>,
    /// The last minutes.
    pub(super) flight: Mutex<Flight>,
    /// What there is to say of the recording that was asked for.
    saved: Mutex<String>,
    ends: Mutex<bool>,
}

/// A terminal in use, which is as it was before once this is dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Screen {
    /// Is there a terminal?
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn is_possible() -> Result<(), TopError> {
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        if terminal { Ok(()) } else { Err(TopError::NoTerminal) }
    }

    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// It cannot be used.
    pub(crate) fn start(flight: Flight, colour: bool) -> Result<Self, TopError> {
        let picture = Mutex::new(Picture::waiting("the first look at the node"));
        let (flight, saved) = (Mutex::new(flight), Mutex::default());
        let shared = Arc::new(Shared { picture, flight, saved, ends: Mutex::new(false) });
        let theirs = Arc::clone(&shared);
        let terminal = ratatui::try_init().map_err(TopError::Terminal)?;
        let work = move || {
            // A terminal that has gone ends it, as `q` does.
            let _ = serve(terminal, &theirs, colour);
            ratatui::restore();
            if !*lock(&theirs.ends) {
                end_the_observation();
            }
        };
        match thread::Builder::new().name("terminal".to_owned()).spawn(work) {
            Ok(thread) => Ok(Self { shared, thread: Some(thread) }),
            Err(error) => {
                ratatui::restore();
                Err(TopError::Terminal(error))
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        *lock(&self.shared.ends) = true;
        if let Some(thread) = self.thread.take() {
            // It looks at the end every tick; a terminal that does not take what is written keeps nobody waiting for long.
            (0..10).take_while(|_| !thread.is_finished()).for_each(|_| thread::sleep(TICK / 2));
        }
    }
}

/// As Ctrl-C does where no terminal is in raw mode: with its probes taken off first.
fn end_the_observation() {
    // The signal is for ourselves: it cannot be refused.
    let _ = kill_process(getpid(), Signal::TERM);
}

fn serve(mut terminal: DefaultTerminal, shared: &Arc<Shared>, colour: bool) -> io::Result<()> {
    let (mut frozen, mut saver) = (None::<Picture>, None::<JoinHandle<()>>);
    while !*lock(&shared.ends) {
        let picture = frozen.clone().unwrap_or_else(|| lock(&shared.picture).clone());
        let note = [if frozen.is_some() { "FROZEN " } else { "" }, &lock(&shared.saved)].concat();
        terminal.draw(|frame| draw(&picture, &note, colour, frame))?;
        if has_gone(TICK)? {
            return Ok(());
        }
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if is_quit(key) {
            return Ok(());
        }
        match key.code {
            KeyCode::Char('f') => {
                frozen = if frozen.is_some() { None } else { Some(picture) };
            }
            // One at a time: a disk that hangs has the first one, and not the keys.
            KeyCode::Char('s') if saver.as_ref().is_none_or(JoinHandle::is_finished) => {
                *lock(&shared.saved) = "saving".to_owned();
                let shared = Arc::clone(shared);
                saver = Some(thread::Builder::new().name("save".to_owned()).spawn(move || {
                    let said = save(&shared).unwrap_or_else(|error| format!("not saved: {}", chain(&error)));
                    *lock(&shared.saved) = said;
                })?);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Waits for a key; has the terminal gone meanwhile? crossterm would read from one that has, for ever and without a pause.
fn has_gone(limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
    match poll(&mut terminal, Some(&limit)) {
        // A signal: of another size, or of the end.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

fn is_quit(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// Writes the last minutes into a new file of this directory that only its owner can read.
fn save(shared: &Shared) -> io::Result<String> {
    // Whoever observes waits for the copy, not for what is made of it.
    let flown = lock(&shared.flight).copy();
    let recording = flown.into_recording();
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let at = human::rfc3339(i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX));
    let at = at.split('.').next().unwrap_or_default().replace([':', '-'], "");
    let name = format!("plegtrace-{at}Z.plegtrace");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name)?;
    file.write_all(&recording)?;
    Ok(format!("saved {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_it() {
        let key = |code, modifiers| is_quit(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Char('f'), KeyModifiers::NONE));
    }
}

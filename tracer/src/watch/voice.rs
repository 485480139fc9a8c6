//! [`Voice`]: what `watch` says to systemd and on its standard output. Both may hang, systemd above all: that is one of the stalls that we
//! are to see. So threads say it, and whoever observes never waits: what finds no room is left out, and counted.

use std::{
    io::{self, Write},
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

/// What waits to be said, at most: lines of stalls that begin and end, and a word to systemd each second.
const ROOM: usize = 64;
/// The last words may take so long.
const LAST: Duration = Duration::from_secs(1);

/// Something to say.
#[derive(Debug)]
pub(super) enum Said {
    /// To systemd: it runs, and what it does.
    Ready(String),
    /// To systemd: it is alive.
    Alive,
    /// To systemd: it ends.
    Stopping,
    /// A line for the journal.
    Line(String),
}

/// Two threads, so that a journal that nobody reads keeps nothing from systemd.
#[derive(Debug)]
pub(super) struct Voice {
    systemd: Option<SyncSender<Said>>,
    journal: Option<SyncSender<Said>>,
    threads: [JoinHandle<()>; 2],
    unsaid: u64,
}

impl Voice {
    /// Starts to speak.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(super) fn start() -> io::Result<Self> {
        Self::with(notify, print)
    }

    fn with(to_systemd: fn(&Said), to_journal: fn(&Said)) -> io::Result<Self> {
        let (systemd, one) = speaker("notify", to_systemd)?;
        let (journal, other) = speaker("journal", to_journal)?;
        Ok(Self { systemd: Some(systemd), journal: Some(journal), threads: [one, other], unsaid: 0 })
    }

    /// Says it when its turn comes; waits for nobody.
    pub(super) fn say(&mut self, said: Said) {
        // Another sign of life comes in a second.
        let matters = !matches!(said, Said::Alive);
        let to = if matches!(said, Said::Line(_)) { &self.journal } else { &self.systemd };
        let is_taken = to.as_ref().is_some_and(|to| to.try_send(said).is_ok());
        if !is_taken && matters {
            self.unsaid += 1;
            tracing::warn!(
                "{} messages to systemd or on stdout were left out: nobody takes them",
                self.unsaid
            );
        }
    }

    /// Says the last word, and waits a little for all to be said.
    pub(super) fn end(&mut self) {
        self.say(Said::Stopping);
        (self.systemd, self.journal) = (None, None);
        let begin = Instant::now();
        while begin.elapsed() < LAST && !self.threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A thread that says what it is given, one after the other, until nobody gives it anything any more.
fn speaker(name: &str, say: fn(&Said)) -> io::Result<(SyncSender<Said>, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel::<Said>(ROOM);
    let speak = move || receiver.iter().for_each(|said| say(&said));
    Ok((sender, thread::Builder::new().name(name.to_owned()).spawn(speak)?))
}

/// Tells systemd, when it listens.
fn notify(said: &Said) {
    let states = match said {
        Said::Ready(status) => vec![NotifyState::Ready, NotifyState::Watchdog, NotifyState::Status(status)],
        Said::Alive => vec![NotifyState::Watchdog],
        Said::Stopping => vec![NotifyState::Stopping],
        Said::Line(_) => return,
    };
    if let Err(error) = sd_notify::notify(&states) {
        tracing::debug!("cannot notify systemd: {error}");
    }
}

/// A line for the journal. A closed stdout is no reason to stop.
fn print(said: &Said) {
    let Said::Line(line) = said else { return };
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Somebody who never takes a word holds up nobody, however much there is to say, and not the end either.
    #[test]
    fn who_does_not_listen_holds_up_nobody() {
        fn hang(_: &Said) {
            thread::sleep(Duration::from_secs(3600));
        }
        let mut voice = Voice::with(hang, hang).unwrap();
        for n in 0..10 * ROOM {
            voice.say(Said::Alive);
            voice.say(Said::Line(n.to_string()));
        }
        assert!(voice.unsaid >= 8 * ROOM as u64, "{}", voice.unsaid);
        voice.end();
    }

    /// All is said, in order, before it ends.
    #[test]
    fn everything_is_said() {
        fn hear(said: &Said) {
            HEARD.lock().unwrap().push(format!("{said:?}"));
        }
        let mut voice = Voice::with(hear, |_| {}).unwrap();
        voice.say(Said::Ready("watching".to_owned()));
        voice.say(Said::Alive);
        voice.end();
        assert_eq!(*HEARD.lock().unwrap(), ["Ready(\"watching\")", "Alive", "Stopping"]);
    }
}

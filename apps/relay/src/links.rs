//! The watch that tells the workers of a run which interfaces there are: a thread that hears the kernel's news.
//!
//! It looks when there are news and never otherwise, at most a hundred times a second. Without
//! it rules are as if every interface stayed.

use crate::{book::Book, desk::Mailbox};
use laneway_core::Bell;
use laneway_linux::LinkWatch;
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Between two looks: a burst of news is one reason.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The thread, until dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    stop: Bell,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Tells the workers of a book about the interfaces of this thread's network namespace, once now and again
    /// whenever they, their addresses or routes change.
    ///
    /// # Errors
    /// The kernel does not tell of interfaces here.
    pub(crate) fn begin(book: &Book) -> io::Result<Follower> {
        let watch = LinkWatch::open()?;
        let workers = book.mailboxes().to_vec();
        send_all(&watch, &workers)?;
        let stop = Bell::new()?;
        let until = stop.clone();
        let follow = move || {
            while watch.wait(&until).unwrap_or(false) {
                // What fails for want of memory is tried again at the next news.
                let _ = send_all(&watch, &workers);
                thread::sleep(LOOK_INTERVAL);
            }
        };
        let thread = thread::Builder::new().name("interfaces".to_owned()).spawn(follow)?;
        Ok(Follower { stop, thread: Some(thread) })
    }
}

fn send_all(watch: &LinkWatch, workers: &[Arc<Mailbox>]) -> io::Result<()> {
    let links = Arc::new(watch.look()?);
    workers.iter().for_each(|worker| worker.send_links(&links));
    Ok(())
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // It ends by itself, and has nothing to say.
            let _ = thread.join();
        }
    }
}

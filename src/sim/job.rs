use crate::primitives::{Criticality, ItemId, Permit, Ticket, Time, Work};

/// One attempt of a request on its way; recognised for ever once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId {
    key: u32,
    serial: u32,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: usize,
    /// Which attempt of the request, from 0.
    pub(crate) attempt: u32,
    /// Which source it is from.
    pub(crate) source: usize,
    pub(crate) criticality: Criticality,
    /// Which attempt it is in the record.
    pub(crate) record: usize,
    pub(crate) sent: Time,
    /// When work on it began at its stage.
    pub(crate) begun: Time,
    pub(crate) deadline: Option<Time>,
    /// At which stage it is, and where there.
    pub(crate) stage: usize,
    pub(crate) place: Place,
    /// What it was given on its way, to be given back.
    pub(crate) held: Vec<Held>,
    /// Whether the client has given it up.
    pub(crate) is_given_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// Between client and server, or between two of its places.
    OnTheWay,
    /// In a plain queue.
    Queued {
        link: usize,
    },
    Item {
        link: usize,
        item: ItemId,
    },
    Line {
        link: usize,
        ticket: Ticket,
    },
    Backlog,
    /// With a worker.
    Worked,
    /// Done by the worker, and not there yet.
    Delayed,
    /// Answered, and on its way back.
    Answered,
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) stage: usize,
    pub(crate) link: usize,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Permit(Permit),
    Work(Work),
}

/// All attempts on their way.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    entries: Vec<(u32, Option<Job>)>,
    free: Vec<u32>,
}

impl Jobs {
    pub(crate) fn insert(&mut self, job: Job) -> JobId {
        if let Some(key) = self.free.pop() {
            let (serial, entry) = &mut self.entries[key as usize];
            *entry = Some(job);
            return JobId { key, serial: *serial };
        }
        let key = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push((0, Some(job)));
        JobId { key, serial: 0 }
    }

    pub(crate) fn get(&mut self, id: JobId) -> Option<&mut Job> {
        let (serial, entry) = self.entries.get_mut(id.key as usize)?;
        entry.as_mut().filter(|_| *serial == id.serial)
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.get(id)?;
        let (serial, entry) = self.entries.get_mut(id.key as usize)?;
        *serial = serial.wrapping_add(1);
        self.free.push(id.key);
        entry.take()
    }
}

#[cfg(test)]
impl Jobs {
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

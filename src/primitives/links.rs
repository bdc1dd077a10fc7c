use slab::Slab;

/// The neighbours of an entry in one list that it stands in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    prev: Option<u32>,
    next: Option<u32>,
}

/// What stands in a [`List`]; with several lists through the same entries, each
/// has a number.
pub(crate) trait Linked<const LIST: usize = 0> {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A doubly linked list through the entries of a slab: constant time at both
/// ends and for leaving from the middle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List<const LIST: usize = 0> {
    head: Option<u32>,
    tail: Option<u32>,
}

impl<const LIST: usize> List<LIST> {
    pub(crate) const fn new() -> Self {
        Self { head: None, tail: None }
    }

    pub(crate) const fn head(self) -> Option<u32> {
        self.head
    }

    pub(crate) const fn tail(self) -> Option<u32> {
        self.tail
    }

    pub(crate) fn push_back<T: Linked<LIST>>(&mut self, entries: &mut Slab<T>, key: u32) {
        self.insert_after(entries, self.tail, key);
    }

    /// Puts `key` behind `prev`; at the head if `prev` is `None`.
    pub(crate) fn insert_after<T: Linked<LIST>>(
        &mut self,
        entries: &mut Slab<T>,
        prev: Option<u32>,
        key: u32,
    ) {
        let next = match prev {
            Some(prev) => entries[prev as usize].links().next,
            None => self.head,
        };
        *entries[key as usize].links_mut() = Links { prev, next };
        self.set_next(entries, prev, Some(key));
        self.set_prev(entries, next, Some(key));
    }

    pub(crate) fn unlink<T: Linked<LIST>>(&mut self, entries: &mut Slab<T>, key: u32) {
        let Links { prev, next } = std::mem::take(entries[key as usize].links_mut());
        self.set_next(entries, prev, next);
        self.set_prev(entries, next, prev);
    }

    fn set_next<T: Linked<LIST>>(
        &mut self,
        entries: &mut Slab<T>,
        of: Option<u32>,
        to: Option<u32>,
    ) {
        match of {
            Some(key) => entries[key as usize].links_mut().next = to,
            None => self.head = to,
        }
    }

    fn set_prev<T: Linked<LIST>>(
        &mut self,
        entries: &mut Slab<T>,
        of: Option<u32>,
        to: Option<u32>,
    ) {
        match of {
            Some(key) => entries[key as usize].links_mut().prev = to,
            None => self.tail = to,
        }
    }
}

impl Links {
    pub(crate) const fn prev(self) -> Option<u32> {
        self.prev
    }

    pub(crate) const fn next(self) -> Option<u32> {
        self.next
    }
}

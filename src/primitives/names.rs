use rustc_hash::FxHashMap;

/// Which place each of at most 64 names has, so that names made up by strangers cost no
/// memory. What is known of whoever has a place is kept beside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: Vec<Box<str>>,
    /// At most 64: whoever makes names up to collide gains nothing.
    places: FxHashMap<Box<str>, u8>,
}

impl Names {
    /// How many there can be.
    pub(crate) const MOST: usize = 64;

    /// The place of that name, if it has one.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied().map(usize::from)
    }

    /// Gives a name that has no place the next one, or that of whoever `is_forgotten`;
    /// `None` if all are taken.
    #[cold]
    pub(crate) fn make(
        &mut self,
        name: &str,
        is_forgotten: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let place = if self.names.len() < Self::MOST {
            self.names.push(name.into());
            self.names.len() - 1
        } else {
            let place = is_forgotten()?;
            let forgotten = std::mem::replace(self.names.get_mut(place)?, name.into());
            self.places.remove(&forgotten);
            place
        };
        self.places.insert(name.into(), u8::try_from(place).ok()?);
        Some(place)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        // Both sides say the same.
        assert_eq!(self.names.len(), self.places.len());
        self.names.iter().map(|name| &**name)
    }
}

/// Puts what is known of whoever has just got a place there.
pub(crate) fn put<T>(known: &mut Vec<T>, place: usize, fresh: T) {
    match known.get_mut(place) {
        Some(old) => *old = fresh,
        None => known.push(fresh),
    }
}

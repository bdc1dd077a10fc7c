/// How much a unit of work matters, least first.
///
/// The four classes of Google's SRE book. The default is
/// [`Critical`](Criticality::Critical): whoever says nothing is served like
/// everybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Criticality {
    /// Partial unavailability is expected: batch work, prefetching.
    Sheddable = 0,
    /// Occasional unavailability is expected.
    SheddablePlus = 1,
    /// Users see it when it fails.
    #[default]
    Critical = 2,
    /// Users see it at once and badly when it fails.
    CriticalPlus = 3,
}

impl Criticality {
    /// All classes, least critical first.
    pub const ALL: [Self; 4] =
        [Self::Sheddable, Self::SheddablePlus, Self::Critical, Self::CriticalPlus];

    /// The position in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in texts, which is that of the member in Python.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sheddable => "SHEDDABLE",
            Self::SheddablePlus => "SHEDDABLE_PLUS",
            Self::Critical => "CRITICAL",
            Self::CriticalPlus => "CRITICAL_PLUS",
        }
    }
}

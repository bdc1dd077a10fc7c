/// How a unit of work ended, as far as a limiter is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The work was done; its duration teaches a limiter.
    #[default]
    Success = 0,
    /// The work says nothing of its own about load: client errors,
    /// cancellations, our own rejections.
    Ignored = 1,
    /// Overload was seen downstream: a time-out, a 504; at clients also a
    /// 429, a 503 or a refused connection.
    Overload = 2,
}

impl Outcome {
    /// All outcomes, in the order of their [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Success, Self::Ignored, Self::Overload];

    /// The position in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Ignored => "ignored",
            Self::Overload => "overload",
        }
    }
}

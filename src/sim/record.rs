use super::expect::{Expectation, Measure};
use crate::primitives::Time;
use crate::primitives::gradient::Because;

/// All that happened, as the clients saw it, and what was looked at on the way.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) requests: Vec<Request>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) answers: Vec<Answer>,
    pub(super) gauges: Vec<Gauge>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) arrived: Time,
    pub(super) class: u16,
    pub(super) is_good: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) sent: Time,
    pub(super) class: u16,
    pub(super) fate: Fate,
}

impl Attempt {
    /// Whether it left the client.
    pub(super) fn is_sent(&self) -> bool {
        self.fate != Fate::Throttled
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody knows yet.
    Open,
    /// Answered in time.
    Good,
    /// Answered too late, or not yet.
    Late,
    /// Answered with a failure.
    Failed,
    /// Rejected by the server.
    Rejected,
    /// Never sent, by the client's throttle.
    Throttled,
}

/// Work that was done, whether somebody still wanted it or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) at: Time,
    /// Since the attempt was sent, in nanoseconds.
    pub(super) latency: u64,
    pub(super) class: u16,
    pub(super) is_good: bool,
}

/// What was seen at the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauge {
    pub(super) at: Time,
    /// Not a number if nothing limits.
    pub(super) limit: f64,
    /// Why, if something limits that follows latency.
    pub(super) because: Option<Because>,
    pub(super) in_flight: u64,
    /// The most since the step before.
    pub(super) waiting: u64,
    pub(super) in_flight_max: u64,
}

/// What happened within some time.
#[derive(Debug, Default)]
pub(super) struct Slice {
    span: f64,
    requests: u64,
    good_requests: u64,
    attempts: u64,
    rejected: u64,
    throttled: u64,
    late: u64,
    failed: u64,
    /// Latencies in nanoseconds, sorted.
    answered: Vec<u64>,
    good: Vec<u64>,
}

impl Record {
    pub(super) fn slice(&self, from: Time, to: Time, class: Option<u16>) -> Slice {
        let is_in = |at: Time, of: u16| from <= at && at < to && class.is_none_or(|it| it == of);
        let mut slice = Slice { span: to.since(from).as_secs_f64(), ..Slice::default() };
        for request in { self.requests.iter() }.filter(|it| is_in(it.arrived, it.class)) {
            slice.come(request);
        }
        for attempt in self.attempts.iter().filter(|it| is_in(it.sent, it.class)) {
            slice.count(attempt.fate);
        }
        for answer in self.answers.iter().filter(|it| is_in(it.at, it.class)) {
            slice.take(answer);
        }
        slice.sort();
        slice
    }

    /// One slice for each gauge: what happened since the one before.
    pub(super) fn slices(&self) -> Vec<Slice> {
        let mut slices = Vec::with_capacity(self.gauges.len());
        let mut from = Time::ZERO;
        for gauge in &self.gauges {
            let span = gauge.at.since(from).as_secs_f64();
            slices.push(Slice { span, ..Slice::default() });
            from = gauge.at;
        }
        let find = |at: Time| self.gauges.partition_point(|gauge| gauge.at <= at);
        for request in &self.requests {
            if let Some(slice) = slices.get_mut(find(request.arrived)) {
                slice.come(request);
            }
        }
        for attempt in &self.attempts {
            if let Some(slice) = slices.get_mut(find(attempt.sent)) {
                slice.count(attempt.fate);
            }
        }
        for answer in &self.answers {
            if let Some(slice) = slices.get_mut(find(answer.at)) {
                slice.take(answer);
            }
        }
        slices.iter_mut().for_each(Slice::sort);
        slices
    }

    /// What an expectation asks for.
    pub(super) fn measure(
        &self,
        slice: &Slice,
        measure: Measure,
        (from, to): (Time, Time),
        expectation: &Expectation,
    ) -> f64 {
        let gauges = || self.gauges.iter().filter(|gauge| from <= gauge.at && gauge.at <= to);
        let limits = || gauges().map(|gauge| gauge.limit);
        // A gauge says of the most that there was in the step that it ends.
        let most = |of: fn(&Gauge) -> u64| {
            let most = gauges().filter(|gauge| from < gauge.at).map(of).max();
            most.map_or(f64::NAN, |most| most as f64)
        };
        let at = |moment: Time| {
            let position = self.gauges.partition_point(|gauge| gauge.at <= moment);
            let gauge = self.gauges.get(position.saturating_sub(1));
            gauge.map_or(f64::NAN, |gauge| gauge.limit)
        };
        match measure {
            Measure::LimitMax => limits().fold(f64::NAN, f64::max),
            Measure::LimitMin => limits().fold(f64::NAN, f64::min),
            Measure::LimitEnd => at(to),
            Measure::LimitGrowth => {
                let reference = expectation.reference.map_or(from, Time::from_secs_f64);
                limits().fold(f64::NAN, f64::max) / at(reference)
            }
            Measure::WaitingMax => most(|gauge| gauge.waiting),
            Measure::InFlightMax => most(|gauge| gauge.in_flight_max),
            measure => slice.measure(measure),
        }
    }
}

impl Slice {
    fn come(&mut self, request: &Request) {
        self.requests += 1;
        self.good_requests += u64::from(request.is_good);
    }

    fn count(&mut self, fate: Fate) {
        if fate == Fate::Throttled {
            self.throttled += 1;
            return;
        }
        self.attempts += 1;
        self.rejected += u64::from(fate == Fate::Rejected);
        self.failed += u64::from(fate == Fate::Failed);
        self.late += u64::from(matches!(fate, Fate::Late | Fate::Open));
    }

    fn take(&mut self, answer: &Answer) {
        self.answered.push(answer.latency);
        if answer.is_good {
            self.good.push(answer.latency);
        }
    }

    fn sort(&mut self) {
        self.answered.sort_unstable();
        self.good.sort_unstable();
    }

    /// All but those that gauges are needed for. Not a number are these, shares of
    /// nothing and quantiles of nothing.
    pub(super) fn measure(&self, measure: Measure) -> f64 {
        let share = |part: u64, whole: u64| {
            if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
        };
        let rate = |count: u64| if self.span > 0.0 { count as f64 / self.span } else { 0.0 };
        match measure {
            Measure::Offered => rate(self.requests),
            Measure::Goodput => rate(self.good.len() as u64),
            Measure::Throughput => rate(self.answered.len() as u64),
            Measure::Good => share(self.good_requests, self.requests),
            Measure::Lost => share(self.requests - self.good_requests, self.requests),
            Measure::Attempts => rate(self.attempts),
            Measure::AttemptsPerRequest => share(self.attempts, self.requests),
            Measure::Rejected => share(self.rejected, self.attempts),
            Measure::Throttled => rate(self.throttled),
            Measure::Late => share(self.late, self.attempts),
            Measure::Failed => share(self.failed, self.attempts),
            Measure::Mean => mean(&self.answered),
            Measure::P50 => quantile(&self.answered, 0.5),
            Measure::P95 => quantile(&self.answered, 0.95),
            Measure::P99 => quantile(&self.answered, 0.99),
            Measure::Slowest => quantile(&self.answered, 1.0),
            Measure::GoodP50 => quantile(&self.good, 0.5),
            Measure::GoodP99 => quantile(&self.good, 0.99),
            Measure::LimitMax
            | Measure::LimitMin
            | Measure::LimitEnd
            | Measure::LimitGrowth
            | Measure::WaitingMax
            | Measure::InFlightMax => f64::NAN,
        }
    }
}

/// In seconds, of nanoseconds; not a number of none.
fn mean(spans: &[u64]) -> f64 {
    spans.iter().map(|nanos| *nanos as f64 / 1e9).sum::<f64>() / spans.len() as f64
}

/// In seconds, of sorted nanoseconds: the least that as many are at or below; not a
/// number of none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a length
fn quantile(sorted: &[u64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, |nanos| *nanos as f64 / 1e9)
}

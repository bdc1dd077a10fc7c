/// Numbers of slots that are tried, and by which samples are told apart.
const SLOTS: [u64; 19] =
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768];
/// Fewer samples show nothing.
const FEWEST: f64 = 8.0;
/// By how many variances of what is left the squares have to become less, for slots to be there
/// at all (three standard errors), and to be told from more slots (one).
const CERTAIN: f64 = 9.0;
const ALIKE: f64 = 1.0;

/// What samples took, by how much was in flight when they were admitted: it shows from the very
/// first ones, while more and more is in flight, for how many there are slots, and what the work
/// takes without a queue, however much there is.
///
/// Whoever comes as number n to c slots takes n / c times as long as alone, if that is more than
/// once. Of all c, and no bound at all, that is taken which fits with the least squares, and of
/// those that fit alike the largest.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    /// By the first of [`SLOTS`] that is enough for them.
    classes: [Class; SLOTS.len() + 1],
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    count: f64,
    /// Sums of what took, of what was in flight, and of their products.
    took: f64,
    took_squares: f64,
    in_flight_squares: f64,
    products: f64,
}

/// What a [`Crowd`] shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slots {
    /// For how many there is room.
    pub(super) count: u64,
    /// What one takes that finds room, in nanoseconds.
    pub(super) alone: f64,
}

impl Crowd {
    /// Somebody took so long, with so much in flight when he was admitted, himself included.
    pub(super) fn add(&mut self, in_flight: u64, nanos: f64) {
        let place = SLOTS.iter().position(|&slots| in_flight <= slots).unwrap_or(SLOTS.len());
        let class = &mut self.classes[place];
        let in_flight = in_flight as f64;
        class.count += 1.0;
        class.took += nanos;
        class.took_squares += nanos * nanos;
        class.in_flight_squares += in_flight * in_flight;
        class.products += in_flight * nanos;
    }

    /// The slots, if it is certain that they are not without bound.
    pub(super) fn slots(&self) -> Option<Slots> {
        let all = |part: fn(&Class) -> f64| self.classes.iter().map(part).sum::<f64>();
        let (count, took) = (all(|class| class.count), all(|class| class.took));
        if count < FEWEST {
            return None;
        }
        let squares = all(|class| class.took_squares);
        let fits = || {
            SLOTS.iter().enumerate().map(|(place, &slots)| {
                let alone = self.alone(place, slots as f64);
                (squares - alone.1 * alone.0, Slots { count: slots, alone: alone.0 })
            })
        };
        let least = fits().map(|(left, _)| left).fold(f64::INFINITY, f64::min).max(0.0);
        let variance = least / (count - 2.0);
        let is_alike = |(left, _): &(f64, Slots)| left - least <= ALIKE * variance;
        let (left, slots) = fits().rfind(is_alike)?;
        let without = squares - took * took / count;
        (without - left > CERTAIN * variance).then_some(slots)
    }

    /// What one takes alone, if there are so many slots, up to the class at `place`; and the
    /// weighted sum that it is of.
    fn alone(&self, place: usize, slots: f64) -> (f64, f64) {
        let (within, beyond) = self.classes.split_at(place + 1);
        let sum =
            |classes: &[Class], part: fn(&Class) -> f64| -> f64 { classes.iter().map(part).sum() };
        let weights = sum(within, |class| class.count)
            + sum(beyond, |class| class.in_flight_squares) / (slots * slots);
        let products =
            sum(within, |class| class.took) + sum(beyond, |class| class.products) / slots;
        (products / weights, products)
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)]
mod tests {
    use super::*;

    /// All come at once, to so many slots, and each works for 10 to 20.
    fn crowd(slots: usize, count: u64) -> Crowd {
        let mut crowd = Crowd::default();
        let mut free = vec![0.0_f64; slots];
        for number in 1..=count {
            free.sort_by(f64::total_cmp);
            free[0] += 10.0 + (number * 7 % 11) as f64;
            crowd.add(number, free[0]);
        }
        crowd
    }

    #[test]
    fn slots_show_from_the_first_burst() {
        for slots in [1, 2, 4, 8] {
            let shown = crowd(slots, 40).slots().expect("they are far too few");
            let ratio = shown.count as f64 / slots as f64;
            assert!((0.5..=2.0).contains(&ratio), "{slots}: {shown:?}");
            assert!((8.0..=30.0).contains(&shown.alone), "{slots}: {shown:?}");
        }
    }

    #[test]
    fn none_are_seen_where_there_are_enough() {
        assert_eq!(crowd(40, 40).slots(), None);
        assert_eq!(crowd(1, 7).slots(), None, "too few to tell");
    }

    #[test]
    fn of_slots_that_explain_as_much_it_is_the_most() {
        // All found many more than there are slots: it may be any number below.
        let mut crowd = Crowd::default();
        for in_flight in 33..=96 {
            crowd.add(in_flight, in_flight as f64);
        }
        assert_eq!(crowd.slots(), Some(Slots { count: 32, alone: 32.0 }));
    }
}

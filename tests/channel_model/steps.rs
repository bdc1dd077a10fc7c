use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Copy, Debug)]
pub struct Offered {
    pub criticality: usize,
    /// In how many milliseconds.
    pub deadline: Option<u64>,
}

#[derive(Clone, Debug)]
pub enum Step {
    PutNow(Offered, Option<u64>),
    PutIfRoom(Offered),
    /// From which home, and for how many milliseconds at most.
    Put(Offered, u64, Option<u64>),
    TakeNow(Option<u64>),
    /// One is taken, and may be put back.
    Hold(Option<u64>),
    PutBack(Index),
    Take(u64, Option<u64>),
    Claim(Index),
    Cancel(Index),
    CancelItem(Index),
    Finish(Index, bool),
    Pass(u64),
    Expire(Option<u64>),
    Update(usize),
    Close(bool),
    /// Wakes reach a home no longer, or again.
    Cut(u64),
    Fork {
        keeps_items: bool,
    },
    /// All come who are called, until nobody is.
    Settle,
}

pub fn step(homes: u64) -> impl Strategy<Value = Step> {
    let home = 0..homes;
    let bound = prop_oneof![3 => Just(None), 1 => (0..100u64).prop_map(Some)];
    let deadline = prop_oneof![4 => Just(None), 1 => (0..100u64).prop_map(Some)];
    let offered = (prop_oneof![Just(2usize), 0..4usize], deadline)
        .prop_map(|(criticality, deadline)| Offered { criticality, deadline });
    prop_oneof![
        6 => (offered.clone(), prop::option::of(home.clone()))
            .prop_map(|(offered, home)| Step::PutNow(offered, home)),
        10 => (offered.clone(), home.clone(), bound.clone())
            .prop_map(|(offered, home, bound)| Step::Put(offered, home, bound)),
        2 => offered.clone().prop_map(Step::PutIfRoom),
        4 => prop::option::of(home.clone()).prop_map(Step::TakeNow),
        2 => prop::option::of(home.clone()).prop_map(Step::Hold),
        3 => any::<Index>().prop_map(Step::PutBack),
        10 => (home.clone(), bound).prop_map(|(home, bound)| Step::Take(home, bound)),
        12 => any::<Index>().prop_map(Step::Claim),
        4 => any::<Index>().prop_map(Step::Cancel),
        2 => any::<Index>().prop_map(Step::CancelItem),
        3 => (any::<Index>(), any::<bool>()).prop_map(|(which, ok)| Step::Finish(which, ok)),
        6 => (0..60u64).prop_map(Step::Pass),
        3 => prop::option::of(home.clone()).prop_map(Step::Expire),
        2 => (0..5usize).prop_map(Step::Update),
        1 => any::<bool>().prop_map(Step::Close),
        2 => home.prop_map(Step::Cut),
        1 => any::<bool>().prop_map(|keeps_items| Step::Fork { keeps_items }),
        3 => Just(Step::Settle),
    ]
}

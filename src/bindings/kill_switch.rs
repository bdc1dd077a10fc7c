/// Whether `SLUICEGATE_DISABLED` is `1`: gates and throttles that are made then admit
/// everybody, and count that.
///
/// Quotas, budgets, bounds of queues and plain limiters are not lifted: they protect
/// others, or the memory.
pub(crate) fn is_on() -> bool {
    std::env::var_os("SLUICEGATE_DISABLED").is_some_and(|value| value == "1")
}

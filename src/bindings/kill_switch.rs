/// Whether `SLUICEGATE_DISABLED` is set, to anything but an empty text or what says no:
/// gates and throttles that are made then admit everybody, and count that. A switch for
/// emergencies is not to be missed for want of the right word.
///
/// Quotas, budgets, bounds of queues and plain limiters are not lifted: they protect
/// others, or the memory.
pub(crate) fn is_on() -> bool {
    let Some(value) = std::env::var_os("SLUICEGATE_DISABLED") else { return false };
    let value = value.to_string_lossy().to_ascii_lowercase();
    !matches!(value.trim(), "" | "0" | "false" | "no" | "off")
}

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What a file holds. It may be one that never ends, such as `/dev/zero`.
///
/// # Errors
/// If it cannot be read, or is longer than so many bytes.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other(format!("larger than {} MiB", most >> 20)));
    }
    Ok(content)
}

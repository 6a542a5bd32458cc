//! Reads input files up to a length limit, and replaces output files atomically.
//!
//! Inputs may come from anybody: an endless file such as a device is an error instead of filling the memory, and so is
//! a pipe, which might block.

use crate::base::error::Usage;
use anyhow::{ensure, Context, Result};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

/// Largest configuration, specification or manifest, in bytes.
pub const CONFIG_MAX: u64 = 16 << 20;

/// Largest tokenizer or index of weights, in bytes; the largest known ones have about 40 MB.
pub const TOKENIZER_MAX: u64 = 512 << 20;

/// Largest header of a tensor file, in bytes; those of the largest models have some megabytes.
pub const HEADER_MAX: u64 = 100_000_000;

/// Largest text, haystack or file of token ids, in bytes.
pub const TEXT_MAX: u64 = 1 << 30;

/// Returns `true` if something of that name exists, also a link that leads nowhere: that is an error, not an absent file.
pub fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Opens a file for reading. Pipes are refused, because they might block and a resumed run could not read them again.
pub fn open(path: &Path) -> Result<File> {
    #[cfg(unix)]
    if let Ok(metadata) = std::fs::metadata(path) {
        use std::os::unix::fs::FileTypeExt as _;
        let kind = metadata.file_type();
        ensure!(
            !kind.is_fifo() && !kind.is_socket(),
            "cannot read {}: it is a pipe; save it as a file",
            path.display()
        );
    }
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Fills a buffer from an offset of a file, without using the file's cursor.
#[cfg(unix)]
pub fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset)
}

/// Fills a buffer from an offset of a file. A lock protects the file's cursor.
#[cfg(not(unix))]
pub fn read_exact_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    use std::io::Seek as _;
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(buffer)
}

/// Replaces a file atomically: writes `<path>.partial`, copies the permissions of the old file, and renames it. After a
/// kill or on a full disk the old file is still there; the next attempt overwrites the partial file.
pub fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = write(partial).and_then(|()| Ok(take_place(partial, path)?));
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn take_place(partial: &Path, path: &Path) -> std::io::Result<()> {
    let file = File::options().write(true).open(partial)?;
    if let Ok(old) = path.metadata() {
        file.set_permissions(old.permissions())?;
    }
    file.sync_all()?;
    std::fs::rename(partial, path)?;
    sync_folder_of(path);
    Ok(())
}

/// Creates a file that must not be there yet. A file that cannot be written whole is removed again.
///
/// # Errors
/// If the file exists, or cannot be written.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = File::create_new(path)?.write_all(bytes);
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// Returns the folder of a file: `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes the names in the folder of a file to the disk, where the system can: after a power cut a new file is found by its
/// name only then.
pub fn sync_folder_of(path: &Path) {
    if let Ok(folder) = File::open(folder_of(path)) {
        let _ = folder.sync_all();
    }
}

/// Writes a finished file to the disk, so that it survives a power cut.
///
/// # Errors
/// Names the file that cannot be written.
pub fn sync(path: &Path) -> Result<()> {
    let synced = File::options().write(true).open(path).and_then(|file| file.sync_all());
    synced.with_context(|| format!("cannot write {}", path.display()))
}

/// Replaces a file by a CSV file with the fields of the lines as columns; see [`replace`].
pub fn replace_csv(path: &Path, lines: impl IntoIterator<Item = impl Serialize>) -> Result<()> {
    replace(path, |partial| {
        let mut csv = csv::Writer::from_path(partial)?;
        for line in lines {
            csv.serialize(line)?;
        }
        Ok(csv.flush()?)
    })
}

/// Reads the lines of a CSV file with the fields of `L` as columns, one at a time.
pub fn csv_lines<L: DeserializeOwned>(path: &Path) -> Result<impl Iterator<Item = Result<L>>> {
    let (lines, path) = (csv::Reader::from_reader(open(path)?).into_deserialize(), path.to_owned());
    Ok(lines.map(move |line| line.with_context(|| format!("cannot read {}", path.display()))))
}

/// Reads a file of at most `most` bytes.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(most + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(bytes.len() as u64 <= most, "{}: longer than {most} bytes, the most that is read", path.display());
    Ok(bytes)
}

/// As [`bytes`], for a file that the user names: a usage error if it does not exist or is a folder.
pub fn input(path: &Path, most: u64) -> Result<Vec<u8>> {
    bytes(path, most).map_err(|error| {
        for cause in error.chain() {
            let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            if let Some(ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) = kind {
                return Usage(format!("{error:#}")).into();
            }
        }
        error
    })
}

/// Reads a UTF-8 file of at most `most` bytes.
pub fn text(path: &Path, most: u64) -> Result<String> {
    utf8(path, bytes(path, most)?)
}

/// As [`text`], for a file that the user names: a usage error if it does not exist, is a folder, or is not UTF-8.
pub fn input_text(path: &Path, most: u64) -> Result<String> {
    let bytes = input(path, most)?;
    utf8(path, bytes).map_err(|error| Usage(format!("{error:#}")).into())
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).ok().with_context(|| format!("cannot read {}: not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_named_beyond() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(text(&path, 4).unwrap(), "four");
        let error = format!("{:#}", text(&path, 3).unwrap_err());
        assert!(error.contains("x.json: longer than 3 bytes"), "{error}");
        std::fs::write(&path, [0xff]).unwrap();
        assert!(format!("{:#}", text(&path, 9).unwrap_err()).contains("x.json: not UTF-8"));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, "old").unwrap();
        let error = replace(&path, |partial| {
            std::fs::write(partial, "ne")?;
            anyhow::bail!("no room")
        });
        assert!(format!("{:#}", error.unwrap_err()).contains("x.json: no room"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        replace(&path, |partial| Ok(std::fs::write(partial, "new")?)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_device_that_never_ends_is_an_error() {
        assert!(format!("{:#}", bytes(Path::new("/dev/zero"), 1 << 16).unwrap_err()).starts_with("/dev/zero: longer"));
    }
}

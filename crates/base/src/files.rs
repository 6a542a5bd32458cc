//! Reads input files up to a length limit, and replaces output files atomically.
//!
//! Inputs may come from anybody: a device, which may never end, and a pipe, which may block, are errors, and nothing is
//! written through a link.

use crate::error::{is_usage, Usage};
use anyhow::{ensure, Context, Error, Result};
use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

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

/// Opens a file for reading: a regular one, since a device may never end, and a pipe may block and cannot be read again by a
/// resumed run.
pub fn open(path: &Path) -> Result<File> {
    if let Ok(metadata) = std::fs::metadata(path) {
        // A folder is an error of the first read.
        let is_regular = metadata.is_file() || metadata.is_dir();
        ensure!(is_regular, "cannot read {}: it is a pipe or a device; save it as a file", path.display());
    }
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Opens a file of a run folder for reading and writing. A link is refused, because it may lead out of the folder.
pub fn open_to_change(path: &Path) -> Result<File> {
    let metadata = path.symlink_metadata().with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        metadata.is_file(),
        "cannot write {}: it is a link or another thing than a file; remove it",
        path.display()
    );
    let file = File::options().read(true).write(true).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a folder within another, with those between them, and returns its path. A link on the way is refused, because it
/// may lead out of the folder.
pub fn create_folder(base: &Path, within: &str) -> Result<PathBuf> {
    let mut folder = base.to_owned();
    for part in Path::new(within) {
        folder.push(part);
        ensure!(!folder.is_symlink(), "cannot write into {}: it is a link; remove it", folder.display());
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
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
/// kill or on a full disk the old file is still there. A partial file that a kill left, or a link in its place, is removed.
pub fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let _ = std::fs::remove_file(partial);
    let created = File::create_new(partial).map_err(Error::from);
    let written = created.and_then(|_| write(partial)).and_then(|()| Ok(take_place(partial, path)?));
    let written = written.inspect_err(|_| _ = std::fs::remove_file(partial));
    // A mistake of the user is no fault of the file.
    written.map_err(
        |error| if is_usage(&error) { error } else { error.context(format!("cannot write {}", path.display())) },
    )
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

/// Checks that files can be made in a folder, or in the nearest folder above it that exists.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let existing = folder.ancestors().find(|folder| folder.exists());
    tempfile::tempfile_in(existing.unwrap_or(Path::new("."))).map(drop)
}

/// The folder of a file: `.` for a bare name.
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
            // As an error of writing, if it is one: what to do about a full disk depends on that.
            csv.serialize(line).map_err(io::Error::from)?;
        }
        Ok(csv.flush()?)
    })
}

/// Reads the lines of a CSV file with the fields of `L` as columns, one at a time.
pub fn csv_lines<L: DeserializeOwned>(path: &Path) -> Result<impl Iterator<Item = Result<L>>> {
    let lines = csv::Reader::from_reader(open(path)?).into_deserialize();
    let path = path.to_owned();
    Ok(lines.map(move |line| line.with_context(|| format!("cannot read {}", path.display()))))
}

/// Reads JSON lines.
///
/// # Errors
/// If the file cannot be read, with the line that is not understood.
pub fn json_lines<L: DeserializeOwned>(path: &Path) -> Result<Vec<L>> {
    let text = text(path, TEXT_MAX)?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        lines.push(serde_json::from_str(line).with_context(|| format!("{}, line {number}", path.display()))?);
    }
    Ok(lines)
}

/// Reads a file of at most `most` bytes.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(bytes.len() as u64 <= most, "{}: longer than {most} bytes, the most that is read", path.display());
    Ok(bytes)
}

/// As [`bytes`], for a file that the user names: a usage error if it does not exist or is a folder.
pub fn input(path: &Path, most: u64) -> Result<Vec<u8>> {
    bytes(path, most).map_err(usage_if_missing)
}

/// A usage error with the text of `error` if there was no such file.
fn usage_if_missing(error: Error) -> Error {
    for cause in error.chain() {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if let Some(ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) = kind {
            return Usage(format!("{error:#}")).into();
        }
    }
    error
}

/// Reads JSON. The numbers that Python writes and JSON does not have, `NaN`, `Infinity` and `-Infinity`, become texts, which are no
/// numbers to whoever reads the field.
///
/// # Errors
/// If it is not JSON otherwise.
pub fn json(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes)
        .or_else(|error| serde_json::from_slice(&with_quoted_numbers(bytes)).map_err(|_| error))
}

fn with_quoted_numbers(mut json: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::new();
    let mut in_text = false;
    while let Some(&byte) = json.first() {
        let number =
            [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|number| !in_text && json.starts_with(number));
        let taken = match number {
            Some(number) => number.len(),
            None if in_text && byte == b'\\' => 2.min(json.len()),
            None => 1,
        };
        let quote: &[u8] = if number.is_some() { b"\"" } else { b"" };
        [quote, &json[..taken], quote].into_iter().for_each(|bytes| quoted.extend_from_slice(bytes));
        in_text ^= byte == b'"';
        json = &json[taken..];
    }
    quoted
}

/// Returns `true` if a text is UTF-16 without a mark, which reads as UTF-8 with many NULs: every other byte of Latin letters, and at
/// least those of blanks of others.
pub fn looks_like_utf16(text: &str) -> bool {
    let nuls = text.bytes().filter(|&byte| byte == 0).count();
    20 * nuls > text.len()
}

/// Says why a text that a person wrote is no prose, where it is so: UTF-16, and JSON lines.
pub fn check_prose(text: &str) -> Result<(), &'static str> {
    if looks_like_utf16(text) {
        return Err("is UTF-16: save it as UTF-8");
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let is_object = first.starts_with('{') && serde_json::from_str::<serde_json::Value>(first).is_ok();
    if is_object {
        return Err("holds JSON lines, not prose: write their texts into a plain text file");
    }
    Ok(())
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

/// Removes the byte-order mark that some editors put at the beginning of files.
pub fn without_byte_order_mark(text: String) -> String {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    }
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
    fn json_may_have_the_numbers_of_python() {
        for (text, expected) in [
            (r#"{"a": Infinity, "b": [-Infinity, NaN]}"#, r#"{"a": "Infinity", "b": ["-Infinity", "NaN"]}"#),
            (r#"{"Infinity": "NaN \" NaN \\", "b": NaN}"#, r#"{"Infinity": "NaN \" NaN \\", "b": "NaN"}"#),
            (r#"{"a": 1.5}"#, r#"{"a": 1.5}"#),
        ] {
            assert_eq!(json(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(expected).unwrap(), "{text}");
        }
        for text in [r#"{"a": NaNa}"#, r#"{"a": --Infinity}"#, r#"{"a": infinity}"#, r#"{"a": NaN"#, r#"{"a": "\"#] {
            assert!(json(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_prose_says_what_it_is() {
        let utf16: String = "The door opened.".chars().flat_map(|letter| [letter, '\0']).collect();
        assert!(check_prose(&utf16).unwrap_err().contains("UTF-16"));
        assert!(check_prose("{\"text\": \"The door opened.\"}\n").unwrap_err().contains("JSON"));
        for prose in ["The door opened.", "{ is a brace.", "A\0B, one of many letters."] {
            assert_eq!(check_prose(prose), Ok(()));
        }
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
}

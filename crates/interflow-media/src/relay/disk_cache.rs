//! A bounded segment cache on disk that survives restarts. Files appear atomically and carry a checksum; remains of a
//! crash are deleted.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hashlink::LinkedHashMap;
use interflow_files::{AtomicFile, FileAccess, create_private_dir, is_leftover};
use interflow_types::{ResponseHead, StatusCode, Url};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::address::parse;
use super::header_filter;

/// Begins every file; the last byte is the version of the format.
const MAGIC: &[u8; 8] = b"ifseg\x00\x00\x01";
/// BLAKE3 over everything before it, at the end of a file.
const CHECKSUM_LEN: usize = 32;
/// Maximum number of concurrent writes; further segments are not cached, which costs nothing but a later fetch.
const MAX_WRITERS: usize = 4;

/// Identifies a request: see `key_of` of the segment cache. A cryptographic hash, because URLs are chosen by
/// clients, who must not be able to cause a collision.
pub type CacheKey = [u8; 32];

/// The cache. Its index is in memory, rebuilt at start from names and modification times; a file is read and verified
/// only when it is used. Clones of the `Arc` share it.
pub struct DiskCache {
    folder: PathBuf,
    most: u64,
    ttl: Duration,
    index: Mutex<DiskCacheIndex>,
    writing: AtomicUsize,
}

#[derive(Default)]
struct DiskCacheIndex {
    /// In order of insertion, oldest first.
    files: LinkedHashMap<CacheKey, (u64, SystemTime)>,
    bytes: u64,
}

/// A response read from disk, with the final URL after redirects and the fields for clients.
pub struct CachedResponse {
    pub url: Url,
    pub head: ResponseHead,
    pub body: Bytes,
}

#[derive(Serialize, Deserialize)]
struct CacheFileMeta {
    url: String,
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
}

impl DiskCache {
    /// Opens the folder, creating it accessible by its owner only if necessary, and indexes its content.
    ///
    /// # Errors
    /// If it cannot be created or read.
    pub fn open(folder: &Path, most: u64, ttl: Duration) -> io::Result<Arc<Self>> {
        create_private_dir(folder)?;
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, meta) = (entry.path(), entry.metadata()?);
            let key = path.file_name().and_then(|n| n.to_str()).and_then(key_of_name);
            let changed = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let fresh = changed.elapsed().is_ok_and(|age| age < ttl);
            match key.filter(|_| fresh && meta.is_file()) {
                Some(key) => entries.push((changed, key, meta.len())),
                // Incomplete or expired files are deleted; foreign files are left alone.
                None if is_cache_file(&path) => drop(fs::remove_file(&path)),
                None => {}
            }
        }
        entries.sort_unstable();
        let disk = Self { folder: folder.to_owned(), most, ttl, index: Mutex::default(), writing: AtomicUsize::new(0) };
        entries.into_iter().for_each(|(changed, key, length)| disk.add_to_index(key, length, changed));
        Ok(Arc::new(disk))
    }

    /// Deletes the cache of an earlier run. Other files in the folder are left alone.
    pub fn clear(folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for path in entries.flatten().map(|e| e.path()).filter(|p| is_cache_file(p)) {
            let _ = fs::remove_file(path);
        }
        // Succeeds only if the folder is empty.
        let _ = fs::remove_dir(folder);
    }

    pub fn bytes(&self) -> u64 {
        self.index.lock().bytes
    }

    /// The response cached for this key, if it is fresh and intact. A file that fails its checksum is deleted.
    pub async fn get(self: &Arc<Self>, key: CacheKey) -> Option<CachedResponse> {
        let (_, at) = self.index.lock().files.get(&key).copied()?;
        // A clock that was set back counts as expired.
        if at.elapsed().map_or(true, |age| age >= self.ttl) {
            self.remove(&key);
            return None;
        }
        let disk = Arc::clone(self);
        let entry = tokio::task::spawn_blocking(move || disk.read(&key)).await.ok()?;
        if entry.is_none() {
            self.remove(&key);
        }
        entry
    }

    /// Caches a response in the background; write errors are logged, and the response is simply not cached.
    pub fn store(self: &Arc<Self>, key: CacheKey, url: &Url, head: &ResponseHead, chunks: Vec<Bytes>) {
        // Disk slower than the network: rather drop segments than queue them in memory.
        if self.writing.fetch_add(1, Relaxed) >= MAX_WRITERS {
            self.writing.fetch_sub(1, Relaxed);
            return;
        }
        let (disk, url, head) = (Arc::clone(self), url.to_string(), header_filter::response_head(head));
        tokio::task::spawn_blocking(move || {
            if let Err(e) = disk.write(&key, url, &head, &chunks) {
                tracing::warn!(folder = %disk.folder.display(), "a segment is not kept on disk: {e}");
            }
            disk.writing.fetch_sub(1, Relaxed);
        });
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.folder.join(format!("{}.segment", blake3::Hash::from_bytes(*key).to_hex()))
    }

    fn read(&self, key: &CacheKey) -> Option<CachedResponse> {
        let bytes = Bytes::from(fs::read(self.path(key)).ok()?);
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_LEN)?)?;
        if blake3::hash(content).as_bytes() != sum {
            return None;
        }
        let length = u32::from_le_bytes(*content.strip_prefix(MAGIC)?.first_chunk()?) as usize;
        let body = MAGIC.len() + 4 + length;
        let meta: CacheFileMeta = serde_json::from_slice(content.get(MAGIC.len() + 4..body)?).ok()?;
        let mut head = ResponseHead::new(StatusCode::from_u16(meta.status).ok()?);
        for (name, value) in &meta.fields {
            head.headers.append_unchecked(name.as_bytes(), value);
        }
        let url = parse(&meta.url).ok()?.url;
        Some(CachedResponse { url, head, body: bytes.slice(body..bytes.len() - CHECKSUM_LEN) })
    }

    fn write(&self, key: &CacheKey, url: String, head: &ResponseHead, chunks: &[Bytes]) -> io::Result<()> {
        let fields = head.headers.iter().map(|(n, v)| (String::from_utf8_lossy(n).into_owned(), v.to_vec())).collect();
        let meta = serde_json::to_vec(&CacheFileMeta { url, status: head.status.as_u16(), fields })?;
        let length = MAGIC.len() + 4 + meta.len() + chunks.iter().map(Bytes::len).sum::<usize>() + CHECKSUM_LEN;
        // One segment must not evict everything else.
        if length as u64 > self.most / 2 {
            return Ok(());
        }
        // Before writing, so that the limit holds while the file exists.
        self.shrink(self.most - length as u64);
        let written = (|| {
            let mut file = io::BufWriter::new(AtomicFile::create(&self.path(key), FileAccess::Private)?);
            let mut sum = blake3::Hasher::new();
            let size = u32::try_from(meta.len()).unwrap_or(u32::MAX).to_le_bytes();
            for part in [&MAGIC[..], &size, &meta].into_iter().chain(chunks.iter().map(|c| &c[..])) {
                sum.update(part);
                file.write_all(part)?;
            }
            file.write_all(sum.finalize().as_bytes())?;
            // Without `fsync`: a file that a crash leaves incomplete fails its checksum.
            file.into_inner()?.commit_without_sync()
        })();
        if written.is_ok() {
            self.add_to_index(*key, length as u64, SystemTime::now());
        }
        written
    }

    fn add_to_index(&self, key: CacheKey, length: u64, at: SystemTime) {
        {
            let mut index = self.index.lock();
            index.bytes += length;
            if let Some((earlier, _)) = index.files.insert(key, (length, at)) {
                index.bytes -= earlier;
            }
        }
        self.shrink(self.most);
    }

    /// Evicts entries, oldest first, until no more than `most` bytes are left. The lock is released between entries.
    fn shrink(&self, most: u64) {
        let oldest_in_excess = || {
            let index = self.index.lock();
            index.files.front().filter(|_| index.bytes > most).map(|(key, _)| *key)
        };
        while let Some(key) = oldest_in_excess() {
            self.remove(&key);
        }
    }

    fn remove(&self, key: &CacheKey) {
        let mut index = self.index.lock();
        if let Some((length, _)) = index.files.remove(key) {
            index.bytes -= length;
            let _ = fs::remove_file(self.path(key));
        }
    }
}

fn key_of_name(name: &str) -> Option<CacheKey> {
    let hex = name.strip_suffix(".segment")?;
    blake3::Hash::from_hex(hex).ok().map(|h| *h.as_bytes())
}

fn is_cache_file(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "segment") || is_leftover(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn head() -> ResponseHead {
        ResponseHead::new(StatusCode::OK).with_header("Content-Type", "video/mp2t").with_header("ETag", "\"a\"")
    }

    fn put(disk: &DiskCache, n: u8, length: usize) {
        let url = format!("http://o.test/{n}.ts");
        disk.write(&[n; 32], url, &head(), &[Bytes::from(vec![n; length])]).unwrap();
    }

    #[tokio::test]
    async fn cached_segments_survive_a_restart_until_they_expire() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        put(&DiskCache::open(&folder, 1 << 20, HOUR).unwrap(), 1, 5000);
        fs::write(folder.join(".x1.part"), "cut off").unwrap();
        fs::write(folder.join("note.txt"), "unrelated").unwrap();
        let disk = DiskCache::open(&folder, 1 << 20, HOUR).unwrap();
        let kept = disk.get([1; 32]).await.unwrap();
        assert_eq!(
            (kept.url.to_string().as_str(), kept.head.headers.get_str("etag")),
            ("http://o.test/1.ts", Some("\"a\""))
        );
        assert_eq!(kept.body, vec![1; 5000]);
        assert!(disk.get([2; 32]).await.is_none());
        assert!(!folder.join(".x1.part").exists() && folder.join("note.txt").exists());
        let old = DiskCache::open(&folder, 1 << 20, Duration::ZERO).unwrap();
        assert_eq!((old.bytes(), old.get([1; 32]).await.is_none()), (0, true));
    }

    #[tokio::test]
    async fn damaged_cache_entries_are_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(folder.path(), 1 << 20, HOUR).unwrap();
        for (n, damage) in [(1, 200), (2, 0), (3, 5000)] {
            put(&disk, n, 5000);
            let path = disk.path(&[n; 32]);
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                5000 => bytes.truncate(2000),
                at => bytes[at] ^= 1,
            }
            fs::write(&path, bytes).unwrap();
            assert!(disk.get([n; 32]).await.is_none(), "{n}");
            assert!(!path.exists());
        }
        assert_eq!(disk.bytes(), 0);
    }

    #[tokio::test]
    async fn disk_cache_is_bounded_and_evicts_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(folder.path(), 50_000, HOUR).unwrap();
        (1..=20).for_each(|n| put(&disk, n, 10_000));
        put(&disk, 21, 40_000);
        assert!(disk.bytes() <= 50_000 && disk.bytes() > 30_000, "{}", disk.bytes());
        let there: u64 = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(there, disk.bytes());
        assert!(disk.get([20; 32]).await.is_some() && disk.get([1; 32]).await.is_none());
        assert!(disk.get([21; 32]).await.is_none(), "what is larger than half of all is not kept");
    }

    #[cfg(unix)]
    #[test]
    fn the_folder_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskCache::open(&folder.path().join("c"), 1 << 20, HOUR).unwrap();
        put(&disk, 1, 10);
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&disk.folder), mode(&disk.path(&[1; 32]))), (0o700, 0o600));
    }
}

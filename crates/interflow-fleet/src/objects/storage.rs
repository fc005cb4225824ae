//! Reading and writing objects below a place.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use interflow_tasks::AbortOnDrop;
use interflow_types::HttpClient;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt as _, PutPayload, WriteMultipart};
use tokio::io::AsyncReadExt as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::objects::error::{ObjectError, Result};
use crate::objects::url::ObjectUrl;
use crate::objects::{connector, providers};

/// Objects of more bytes are uploaded in parts.
const PART_BYTES: u64 = 8 << 20;
/// The most parts that every provider accepts.
const MAX_PARTS: u64 = 10_000;
/// Parts in flight, each of which is in memory.
const CONCURRENT_PARTS: usize = 4;
/// How long a metadata service, which is on this machine or next to it, may take to answer.
const METADATA_PATIENCE: Duration = Duration::from_secs(2);
/// Objects deleted at once where the API has no call for many.
const CONCURRENT_DELETES: usize = 16;

/// How a storage is reached.
#[derive(Clone)]
pub struct ObjectAccess {
    /// Sends the requests. Its connections belong to the storage's own runtime.
    pub client: Arc<dyn HttpClient>,
    /// Variables of the environment with credentials and settings, such as `AWS_REGION`.
    pub variables: Vec<(String, String)>,
    /// How long one operation is repeated after answers such as 503, timeouts and broken connections.
    pub retry_for: Duration,
}

impl ObjectAccess {
    /// With the variables of this process, and half a minute for repetitions.
    pub fn from_env(client: Arc<dyn HttpClient>) -> Self {
        Self { client, variables: std::env::vars().collect(), retry_for: Duration::from_secs(30) }
    }
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its name below the storage's place.
    pub name: String,
    pub bytes: u64,
}

/// A place in object storage. Names are relative to it, with `/` between their parts.
///
/// Its I/O runs on a thread of its own: the futures may be awaited on any runtime, and [`wait`](Self::wait) runs them from
/// threads without one.
pub struct ObjectStorage {
    url: ObjectUrl,
    place: String,
    store: Arc<dyn ObjectStore>,
    runtime: Option<Runtime>,
    access: ObjectAccess,
}

impl ObjectStorage {
    /// Sets a client up; nothing is sent. [`check`](Self::check) tries it.
    ///
    /// # Errors
    /// The URL or a variable cannot be used, or a folder cannot be created.
    pub fn open(url: &ObjectUrl, access: &ObjectAccess) -> Result<Self> {
        let store = providers::client(url, access)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("objects").enable_all().build();
        let runtime = runtime.map_err(|e| ObjectError::Url { url: url.to_string(), why: e.to_string() })?;
        Ok(Self { url: url.clone(), place: url.to_string(), store, runtime: Some(runtime), access: access.clone() })
    }

    pub const fn url(&self) -> &ObjectUrl {
        &self.url
    }

    /// Runs an operation from a thread that may block. Panics on a thread of an asynchronous runtime.
    pub fn wait<F: Future>(&self, operation: F) -> F::Output {
        self.runtime().block_on(operation)
    }

    /// Writes, reads and deletes an object, so that missing rights show before they are needed.
    ///
    /// # Errors
    /// What failed, with the remedy.
    pub async fn check(&self) -> Result<()> {
        self.check_credentials().await?;
        // Replicas that start together must not delete one another's probe.
        let name = format!(".interflow-check-{:016x}", fastrand::u64(..));
        let probe = Bytes::from_static(b"Interflow checks that it may write, read and delete here.");
        self.put(&name, probe.clone()).await?;
        let read = self.get(&name).await;
        let deleted = self.delete(&name).await;
        if read? != probe {
            return Err(ObjectError::Refused {
                place: self.place.clone(),
                action: "reading back what was written",
                why: "the bytes differ".into(),
                remedy: "check what stands between Interflow and the storage".into(),
            });
        }
        deleted
    }

    /// Without credentials, the machine's metadata service is asked. Where there is none, its address does not answer, and
    /// every request would wait for it in vain.
    async fn check_credentials(&self) -> Result<()> {
        let Some(service) = providers::metadata_service(&self.url, &self.access.variables) else { return Ok(()) };
        let client = Arc::clone(&self.access.client);
        let task = self.runtime().spawn(async move {
            let request = connector::interflow_request(http::Request::get(service).body(Vec::new().into())?)?;
            let answer = tokio::time::timeout(METADATA_PATIENCE, client.send(request)).await?;
            answer.map(drop).map_err(|e| Box::new(e) as Box<dyn std::error::Error + Send + Sync>)
        });
        match task.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(ObjectError::without_credentials(&self.place)),
        }
    }

    /// Writes an object as a whole, or replaces it.
    ///
    /// # Errors
    /// As the storage answers.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.run("writing", name, move |store, path| async move {
            store.put(&path, PutPayload::from_bytes(bytes)).await.map(drop)
        })
        .await
    }

    /// Writes a file as an object, in parts if it is large: readers see it as a whole or not at all.
    ///
    /// # Errors
    /// As the storage answers, or the file cannot be read.
    pub async fn put_file(&self, name: &str, file: &Path) -> Result<()> {
        let file = file.to_owned();
        self.run_upload(name, move |store, path, given_up| async move { upload(&*store, &path, &file, given_up).await })
            .await
    }

    /// Writes an object whose bytes come one after the other, in parts if there are many: readers see it as a whole or not
    /// at all, and memory does not grow with it. `most` is an upper bound of its length. An error of the source ends it.
    ///
    /// # Errors
    /// As the storage answers, or the source's error.
    pub async fn put_stream(
        &self,
        name: &str,
        bytes: impl Stream<Item = std::io::Result<Bytes>> + Send + Unpin + 'static,
        most: u64,
    ) -> Result<()> {
        let upload = move |store: Arc<dyn ObjectStore>, path, given_up| async move {
            upload_stream(&*store, &path, bytes, most, given_up).await
        };
        self.run_upload(name, upload).await
    }

    /// # Errors
    /// As the storage answers; [`ObjectError::NotFound`] if there is none.
    pub async fn get(&self, name: &str) -> Result<Bytes> {
        self.run("reading", name, |store, path| async move { store.get(&path).await?.bytes().await }).await
    }

    /// The bytes of an object within `range`, which must be inside of it.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.run("reading", name, move |store, path| async move { store.get_range(&path, range).await }).await
    }

    /// Writes an object's bytes to a file and returns their number; memory does not grow with it.
    ///
    /// # Errors
    /// As for [`get`](Self::get), or the file cannot be written.
    pub async fn get_to_file(&self, name: &str, file: &Path) -> Result<u64> {
        let file = file.to_owned();
        self.run("reading", name, move |store, path| async move {
            let mut parts = store.get(&path).await?.into_stream();
            let mut out = tokio::fs::File::create(&file).await.map_err(local_error)?;
            let mut bytes = 0;
            while let Some(part) = parts.try_next().await? {
                bytes += part.len() as u64;
                tokio::io::AsyncWriteExt::write_all(&mut out, &part).await.map_err(local_error)?;
            }
            tokio::io::AsyncWriteExt::flush(&mut out).await.map_err(local_error)?;
            Ok(bytes)
        })
        .await
    }

    /// The size of an object; `None` if there is none.
    ///
    /// # Errors
    /// As the storage answers.
    pub async fn size(&self, name: &str) -> Result<Option<u64>> {
        let head = self.run("reading", name, |store, path| async move { store.head(&path).await }).await;
        match head {
            Ok(meta) => Ok(Some(meta.size)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The objects below a folder, sorted by name. The list is in memory as a whole.
    ///
    /// # Errors
    /// As the storage answers.
    pub async fn list(&self, folder: &str) -> Result<Vec<ObjectEntry>> {
        let base = self.path("").map_err(|e| self.error("listing", folder, &e))?;
        let mut found = self
            .run("listing", folder, move |store, path| async move {
                let entries = store.list(Some(&path)).map_ok(|meta| (meta.location, meta.size));
                entries.try_collect::<Vec<_>>().await
            })
            .await?
            .into_iter()
            .filter_map(|(path, bytes)| {
                let parts: Vec<_> = path.prefix_match(&base)?.map(|part| part.as_ref().to_owned()).collect();
                Some(ObjectEntry { name: parts.join("/"), bytes })
            })
            .collect::<Vec<_>>();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Deletes an object; it is not an error if there is none.
    ///
    /// # Errors
    /// As the storage answers.
    pub async fn delete(&self, name: &str) -> Result<()> {
        match self.run("deleting", name, |store, path| async move { store.delete(&path).await }).await {
            Err(e) if e.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// Deletes objects, many with one request where the API can.
    ///
    /// # Errors
    /// The first error; the others have been tried.
    pub async fn delete_all(&self, names: Vec<String>) -> Result<()> {
        let paths = names.iter().map(|name| self.path(name)).collect::<object_store::Result<Vec<_>>>();
        let paths = paths.map_err(|e| self.error("deleting", "", &e))?;
        self.run("deleting", "", move |store, _| async move {
            let done = store.delete_stream(futures_util::stream::iter(paths.into_iter().map(Ok)).boxed());
            let done = done.chunks(CONCURRENT_DELETES).map(|chunk| {
                chunk.into_iter().find_map(|one| one.err().filter(|e| !matches!(e, StoreError::NotFound { .. })))
            });
            let failed: Vec<Option<StoreError>> = done.collect().await;
            failed.into_iter().flatten().next().map_or(Ok(()), Err)
        })
        .await
    }

    /// Runs an operation on the storage's own thread, where its connections are. It ends with the future.
    async fn run<T, F, O>(&self, action: &'static str, name: &str, operation: O) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
        O: FnOnce(Arc<dyn ObjectStore>, ObjectPath) -> F,
    {
        let path = self.path(name).map_err(|e| self.error(action, name, &e))?;
        let done = AbortOnDrop(self.runtime().spawn(operation(Arc::clone(&self.store), path))).await;
        done.unwrap_or_else(|e| Err(StoreError::JoinError { source: e })).map_err(|e| self.error(action, name, &e))
    }

    /// Runs an upload likewise, but does not end it when the future is dropped: it is told, and aborts what it has begun,
    /// since parts that are stored are paid for.
    async fn run_upload<F, O>(&self, name: &str, upload: O) -> Result<()>
    where
        F: Future<Output = object_store::Result<()>> + Send + 'static,
        O: FnOnce(Arc<dyn ObjectStore>, ObjectPath, GivenUp) -> F,
    {
        let path = self.path(name).map_err(|e| self.error("writing", name, &e))?;
        let (_waiting, given_up) = oneshot::channel();
        let done = self.runtime().spawn(upload(Arc::clone(&self.store), path, given_up)).await;
        done.unwrap_or_else(|e| Err(StoreError::JoinError { source: e })).map_err(|e| self.error("writing", name, &e))
    }

    fn error(&self, action: &'static str, name: &str, error: &StoreError) -> ObjectError {
        ObjectError::from_store(&self.place, action, name, error)
    }

    fn path(&self, name: &str) -> object_store::Result<ObjectPath> {
        let separator = if self.url.prefix.is_empty() || name.is_empty() { "" } else { "/" };
        Ok(ObjectPath::parse(format!("{}{separator}{name}", self.url.prefix))?)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime is taken only when the storage is dropped")
    }
}

/// Ends when nobody waits for an upload any more.
type GivenUp = oneshot::Receiver<()>;

impl Drop for ObjectStorage {
    fn drop(&mut self) {
        // Waiting for its tasks would panic on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn upload(
    store: &dyn ObjectStore,
    path: &ObjectPath,
    file: &Path,
    given_up: GivenUp,
) -> object_store::Result<()> {
    let mut file = tokio::fs::File::open(file).await.map_err(local_error)?;
    let size = file.metadata().await.map_err(local_error)?.len();
    if size <= PART_BYTES {
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes).await.map_err(local_error)?;
        return store.put(path, PutPayload::from(bytes)).await.map(drop);
    }
    let mut upload = WriteMultipart::new_with_chunk_size(store.put_multipart(path).await?, part_bytes(size));
    let sent = until_given_up(send_parts(&mut file, &mut upload), given_up).await;
    finish(upload, sent).await
}

async fn upload_stream(
    store: &dyn ObjectStore,
    path: &ObjectPath,
    mut bytes: impl Stream<Item = std::io::Result<Bytes>> + Unpin,
    most: u64,
    given_up: GivenUp,
) -> object_store::Result<()> {
    let (mut first, mut size) = (Vec::new(), 0);
    let mut given_up = given_up;
    while size <= PART_BYTES {
        let next = until_given_up(async { bytes.try_next().await.map_err(local_error) }, &mut given_up).await?;
        match next {
            Some(more) => {
                size += more.len() as u64;
                first.push(more);
            }
            None => return store.put(path, first.into_iter().collect()).await.map(drop),
        }
    }
    let mut upload = WriteMultipart::new_with_chunk_size(store.put_multipart(path).await?, part_bytes(most));
    let sent = async {
        let mut all = futures_util::stream::iter(first.into_iter().map(Ok)).chain(bytes);
        while let Some(more) = all.try_next().await.map_err(local_error)? {
            upload.wait_for_capacity(CONCURRENT_PARTS).await?;
            upload.put(more);
        }
        Ok(())
    };
    let sent = until_given_up(sent, given_up).await;
    finish(upload, sent).await
}

/// Ends early, with an error, when nobody waits for the upload any more.
async fn until_given_up<T>(
    sending: impl Future<Output = object_store::Result<T>>,
    given_up: impl Future,
) -> object_store::Result<T> {
    tokio::select! {
        sent = sending => sent,
        _ = given_up => Err(local_error(std::io::Error::other("the upload was given up"))),
    }
}

/// The size of parts for an object of up to `most` bytes.
fn part_bytes(most: u64) -> usize {
    PART_BYTES.max(most.div_ceil(MAX_PARTS)) as usize
}

async fn finish(upload: WriteMultipart, sent: object_store::Result<()>) -> object_store::Result<()> {
    match sent {
        Ok(()) => upload.finish().await.map(drop),
        Err(e) => {
            // Parts of an upload that is given up are stored, and paid for, until it is aborted.
            if let Err(left) = upload.abort().await {
                tracing::debug!(error = %left, "an upload could not be aborted");
            }
            Err(e)
        }
    }
}

async fn send_parts(file: &mut tokio::fs::File, upload: &mut WriteMultipart) -> object_store::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        upload.wait_for_capacity(CONCURRENT_PARTS).await?;
        match file.read(&mut buffer).await.map_err(local_error)? {
            0 => return Ok(()),
            n => upload.write(&buffer[..n]),
        }
    }
}

fn local_error(error: std::io::Error) -> StoreError {
    StoreError::Generic { store: "file", source: Box::new(error) }
}

//! Client of a running instance's admin API.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{self, Request, Response};
use ureq::{Agent, AsSendBody, Body, SendBody};

use crate::data_dir::{DataDir, InstanceInfo, connect_address};
use crate::{CliError, Result, running_instances};

/// Maximum response size, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// How long the instance may take to accept a connection, and to answer that it is alive.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub struct InstanceApi {
    agent: Agent,
    pub address: SocketAddr,
    pid: u32,
    token: String,
}

/// No instance runs with this data directory.
pub fn not_running(home: &DataDir) -> CliError {
    if let Err(e) = home.check_readable(|file| File::open(file)) {
        return CliError::Failed(e);
    }
    let shown = home.path().display();
    let mut text = format!("no instance is running with the data directory {shown}: start one with `interflow run`");
    let others = running_instances::running();
    if !others.is_empty() {
        text.push_str(&format!("; or use one of these:\n{}", running_instances::list(&others)));
    }
    CliError::NotRunning(text)
}

impl InstanceApi {
    /// The instance that runs with this data directory, if it has an admin listener.
    ///
    /// # Errors
    /// It does not answer, for example because its process is suspended. Operations may take longer than this wait.
    pub fn for_instance(home: &DataDir) -> Result<Option<Self>> {
        let api = Self::unprobed(home)?;
        api.iter().try_for_each(|api| probe(&api.agent, api.address, api.pid))?;
        Ok(api)
    }

    /// As [`for_instance`](Self::for_instance), whether it answers or not: for callers that go on without it and look again.
    ///
    /// # Errors
    /// The admin token cannot be read.
    pub fn unprobed(home: &DataDir) -> Result<Option<Self>> {
        let Some(instance) = home.running_instance() else { return Ok(None) };
        let Some(address) = instance.admin.map(connect_address) else { return Ok(None) };
        Ok(Some(Self { agent: agent(), address, pid: instance.pid, token: home.admin_token()? }))
    }

    /// Sends a signal to the instance, by `send`.
    ///
    /// # Errors
    /// It cannot be sent, or the instance did not answer before, and so may not obey.
    pub fn signal(instance: &InstanceInfo, send: impl FnOnce(&InstanceInfo) -> Result<(), String>) -> Result<()> {
        // Asked first: one that stops or restarts does not answer for a while.
        let address = instance.admin.map(connect_address);
        let probed = address.map_or(Ok(()), |address| probe(&agent(), address, instance.pid));
        send(instance)?;
        probed.map_err(|e| CliError::Failed(format!("the signal was sent, but {e}")))
    }

    /// Connects to the running instance.
    ///
    /// # Errors
    /// No instance is running, or it has no admin listener.
    pub fn require(home: &DataDir) -> Result<Self> {
        let running = home.running_instance();
        Self::for_instance(home)?.ok_or_else(|| match running {
            Some(instance) => CliError::Failed(format!(
                "the running instance (process {}) has no admin port: set admin.listen in its configuration",
                instance.pid
            )),
            None => not_running(home),
        })
    }

    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// The JSON of the response; null if it has none.
    ///
    /// # Errors
    /// The instance does not answer, or refuses the request.
    pub fn send(&self, method: &str, path: &str, input: Option<&Value>) -> Result<Value> {
        self.send_within(None, method, path, input)
    }

    /// As [`send`](Self::send), for at most this time.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn send_within(
        &self,
        limit: Option<Duration>,
        method: &str,
        path: &str,
        input: Option<&Value>,
    ) -> Result<Value> {
        let request = Request::builder().method(method).uri(self.url(path)).header("Authorization", self.bearer());
        match input {
            Some(input) => self.run(limit, request.header("Content-Type", "application/json").body(input.to_string())),
            None => self.run(limit, request.body(())),
        }
    }

    fn run<S: AsSendBody>(&self, limit: Option<Duration>, request: Result<Request<S>, http::Error>) -> Result<Value> {
        let request = request.map_err(|e| CliError::Failed(format!("the request cannot be made: {e}")))?;
        read(self.agent.run(self.agent.configure_request(request).timeout_global(limit).build()))
    }

    /// A response that is not JSON, such as a body or an export.
    pub fn get_text(&self, path: &str) -> Result<String> {
        let mut answer =
            self.agent.get(self.url(path)).header("Authorization", self.bearer()).call().map_err(no_answer)?;
        match answer.status().is_success() {
            true => read_text(&mut answer),
            false => Err(read(Ok(answer)).err().unwrap_or_else(|| CliError::Failed("no response".into()))),
        }
    }

    /// Posts a file of any size, without loading it.
    pub fn send_file(&self, path: &str, mut file: impl Read) -> Result<Value> {
        let request = self.agent.post(self.url(path)).header("Authorization", self.bearer());
        read(request.header("Content-Type", "application/octet-stream").send(SendBody::from_reader(&mut file)))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1{path}", self.address)
    }
}

fn agent() -> Agent {
    // Bypass proxies: this may run under `interflow exec`, whose proxy refuses connections to itself.
    let config = Agent::config_builder().proxy(None).http_status_as_error(false).max_redirects(0);
    config.timeout_connect(Some(ANSWER_TIMEOUT)).build().into()
}

/// Whether the instance at this address answers. What else is wrong with it, an operation says.
fn probe(agent: &Agent, address: SocketAddr, pid: u32) -> Result<()> {
    let probe = agent.get(format!("http://{address}/livez")).config().timeout_global(Some(ANSWER_TIMEOUT)).build();
    let remedy = match cfg!(windows) {
        true => format!("`taskkill /F /PID {pid}` ends it"),
        false => format!("`kill -CONT {pid}` continues a suspended one, `kill -KILL {pid}` ends it"),
    };
    match probe.call() {
        Err(ureq::Error::Timeout(_)) => Err(CliError::Failed(format!(
            "the running instance (process {pid}) does not answer within {} s: it is overloaded or suspended; {remedy}",
            ANSWER_TIMEOUT.as_secs()
        ))),
        _ => Ok(()),
    }
}

fn read(answer: Result<Response<Body>, ureq::Error>) -> Result<Value> {
    let mut answer = answer.map_err(no_answer)?;
    let status = answer.status();
    let text = read_text(&mut answer)?;
    let value: Value = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::Null) };
    if status.is_success() {
        return Ok(value);
    }
    let error = &value["error"];
    // A proxy in between may answer in another form.
    let message = error["message"].as_str().map_or_else(
        || format!("{} (the running instance answered with {})", text.trim(), status.as_u16()),
        str::to_owned,
    );
    let remedy = error["remedy"].as_str().map(|r| format!("; {r}")).unwrap_or_default();
    Err(CliError::Failed(format!("{message}{remedy}")))
}

fn read_text(answer: &mut Response<Body>) -> Result<String> {
    answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string().map_err(no_answer)
}

fn no_answer(error: ureq::Error) -> CliError {
    CliError::Failed(format!("the running instance does not answer: {error}"))
}

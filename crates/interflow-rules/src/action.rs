//! The table of rule actions: name, parameters, phases and help text. The parser, the JSON schema and the reference
//! page are derived from it.

use interflow_types::{Phase, data_file};
use serde::de::value::{MapDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, de};

use crate::params::{
    AnswerParams, AppendFileParams, BasicAuthParams, BlockParams, ByteOffsetParams, CaptureParams, CertificateParams,
    ConnectToParams, CookieLine, DelayParams, DnsServerParam, EditParams, FingerprintParam, HoldParams,
    InjectHtmlParams, InjectParams, LogParams, MapLocalParams, MapRemoteParams, NameList, NoParams, RedirectParams,
    ReplaceField, ReplayParams, SaveSessionParams, ScriptParams, SessionPartParams, TemplatePairs, ThrottleParams,
    TlsVersionParam, UpstreamProxyParams, VariableParams,
};
use crate::text::shape::{ShapedValue, deserialize_shaped, written_schema};
use crate::text::string_list::OneOrManyStrings;
use crate::text::template::TextTemplate;
use interflow_query::unknown_key_message;

deserialize_shaped!(Action, ActionList);

/// Static metadata of an action, from which parser, help, schema and reference page are derived.
#[derive(Debug)]
pub struct ActionInfo {
    pub name: &'static str,
    /// The first phase in which it can run: what it needs is not known before.
    pub earliest: Phase,
    /// The phase in which it runs by default, if the condition is known by then.
    pub natural: Phase,
    /// The last phase in which it can run: what it changes has been sent after that.
    pub latest: Phase,
    /// Help text, one or two sentences in Markdown.
    pub doc: &'static str,
}

impl ActionInfo {
    /// The action as a rule file has it, in YAML.
    pub fn example(&self) -> &'static str {
        example(self.name)
    }
}

fn example(action: &str) -> &'static str {
    let mut examples = data_file::lines(include_str!("../data/action_examples.txt"));
    examples.find(|line| line.split(':').next() == Some(action)).expect("every action has an example")
}

macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $variant:ident($type:ty) $name:literal $earliest:ident $natural:ident $latest:ident;)*) => {
        /// What a rule does, with its parameters. The documentation of a variant is the action's help text.
        #[derive(Clone, Debug)]
        pub enum Action { $($(#[doc = $doc])+ $variant($type),)* }

        /// Every action, in the order of the help.
        pub const ACTIONS: &[ActionInfo] = &[$(ActionInfo {
            name: $name, earliest: Phase::$earliest, natural: Phase::$natural, latest: Phase::$latest,
            doc: concat!($($doc),+),
        },)*];

        impl Action {
            pub fn info(&self) -> &'static ActionInfo {
                let name = match self { $(Self::$variant(_) => $name,)* };
                ACTIONS.iter().find(|a| a.name == name).expect("every action has its line in the table")
            }

            fn read<'de, A: de::MapAccess<'de>>(name: &str, map: &mut A) -> Result<Self, A::Error> {
                match name {
                    $($name => map.next_value::<$type>().map(Self::$variant),)*
                    other => Err(unknown_action(other)),
                }
            }

            fn bare<E: de::Error>(name: &str) -> Result<Self, E> {
                let empty = || MapDeserializer::new(std::iter::empty::<(String, String)>());
                match name {
                    $($name => <$type>::deserialize(empty()).map(Self::$variant).map_err(|e: E| {
                        E::custom(format!("`{name}` needs a value, such as `{}`: {e}", example(name)))
                    }),)*
                    other => Err(unknown_action(other)),
                }
            }
        }

        #[cfg(feature = "schema")]
        fn schemas(g: &mut schemars::SchemaGenerator) -> Vec<(&'static ActionInfo, schemars::Schema)> {
            ACTIONS.iter().zip([$(g.subschema_for::<$type>(),)*]).collect()
        }
    };
}

actions! {
    /// Passes TLS to this authority through without intercepting it.
    Tunnel(NoParams) "tunnel" Authority Authority ClientHello;
    /// Intercepts TLS to this authority.
    Intercept(NoParams) "intercept" Authority Authority ClientHello;
    /// Offers the client only HTTP/1.1 in intercepted TLS.
    ServeHttp1(NoParams) "serve_http1" Authority Authority ClientHello;
    /// Presents this certificate to the client in place of a leaf of Interflow's own CA.
    ShowCertificate(CertificateParams) "show_certificate" Authority Authority ClientHello;
    /// Connects through upstream proxies.
    UpstreamProxy(UpstreamProxyParams) "upstream_proxy" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Connects directly to the origin, even if the configuration has an upstream proxy.
    Direct(NoParams) "direct" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Uses only this HTTP version with the origin: 1.1 or 2.
    HttpVersion(OneOrManyStrings) "http_version" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Connects to another address, another port, or both. Certificates are still verified for the authority's name.
    ConnectTo(ConnectToParams) "connect_to" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Resolves the origin's name with a DNS over HTTPS server (RFC 8484). Its certificate is verified; there is no
    /// fallback.
    DnsOverHttps(DnsServerParam) "dns_over_https" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Uses only this TLS version with the origin: 1.2 or 1.3.
    TlsVersion(TlsVersionParam) "tls_version" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Accepts any certificate of the origin. Dangerous: anyone on the network path can read and change everything.
    DangerSkipVerify(NoParams) "danger_skip_tls_verify" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Presents a client certificate to the origin.
    ClientCertificate(CertificateParams) "client_certificate" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Gives this client's connection an upstream connection of its own, as NTLM requires.
    OwnConnection(NoParams) "own_connection" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Uses another client's TLS fingerprint towards the origin: `mirror` (that of the requesting client), the name of
    /// a profile, `ja3:` and a JA3 text, or `none`. Needs a build with the feature `impersonate`.
    Impersonate(FingerprintParam) "impersonate" UpstreamConnect UpstreamConnect UpstreamConnect;
    /// Adds header fields to the request.
    AddRequestHeader(TemplatePairs) "add_request_header" RequestHead RequestHead RequestBody;
    /// Sets header fields of the request, replacing existing values.
    SetRequestHeader(TemplatePairs) "set_request_header" RequestHead RequestHead RequestBody;
    /// Sets header fields of the request that are already present.
    UpdateRequestHeader(TemplatePairs) "update_request_header" RequestHead RequestHead RequestBody;
    /// Removes header fields from the request; `X-*` removes all with that prefix.
    RemoveRequestHeader(NameList) "remove_request_header" RequestHead RequestHead RequestBody;
    /// Replaces text in a header field of the request.
    ReplaceRequestHeader(ReplaceField) "replace_request_header" RequestHead RequestHead RequestBody;
    /// Changes the method.
    SetMethod(TextTemplate) "set_method" RequestHead RequestHead RequestBody;
    /// Changes the path, query included.
    SetPath(TextTemplate) "set_path" RequestHead RequestHead RequestBody;
    /// Sends the request to another URL.
    SetUrl(TextTemplate) "set_url" RequestHead RequestHead RequestBody;
    /// Sets query parameters.
    SetQuery(TemplatePairs) "set_query" RequestHead RequestHead RequestBody;
    /// Removes query parameters.
    RemoveQuery(NameList) "remove_query" RequestHead RequestHead RequestBody;
    /// Sets cookies of the request.
    SetRequestCookie(TemplatePairs) "set_request_cookie" RequestHead RequestHead RequestBody;
    /// Removes cookies from the request.
    RemoveRequestCookie(NameList) "remove_request_cookie" RequestHead RequestHead RequestBody;
    /// Adds Basic credentials (RFC 7617).
    BasicAuth(BasicAuthParams) "basic_auth" RequestHead RequestHead RequestBody;
    /// Adds a bearer token (RFC 6750).
    BearerToken(TextTemplate) "bearer_token" RequestHead RequestHead RequestBody;
    /// Sends the request to another base URL, or to the URL that a regex replacement produces.
    MapRemote(MapRemoteParams) "map_remote" RequestHead RequestHead RequestBody;
    /// Responds from a file or folder. With status 200, ranges and conditional requests are answered (206, 304, 412).
    MapLocal(MapLocalParams) "map_local" RequestHead RequestHead RequestBody;
    /// Responds from a recording: an archive in any importable format, or recorded flows.
    Replay(ReplayParams) "replay" RequestHead RequestBody RequestBody;
    /// Prevents caching: removes conditional request fields and marks responses as uncacheable.
    Anticache(NoParams) "anticache" RequestHead RequestHead RequestHead;
    /// Requests bodies without compression.
    Anticomp(NoParams) "anticomp" RequestHead RequestHead RequestBody;
    /// Stores the cookies that responses set and sends them with requests that have none.
    StickyCookie(NoParams) "sticky_cookie" RequestHead RequestHead RequestHead;
    /// Stores the `Authorization` of requests and sends it with those that have none.
    StickyAuth(NoParams) "sticky_auth" RequestHead RequestHead RequestHead;
    /// Stores cookies and header fields of responses for their domain.
    SaveSession(SaveSessionParams) "save_session" ResponseHead ResponseHead ResponseHead;
    /// Sends what `save_session` stored for this domain.
    ApplySession(SessionPartParams) "apply_session" RequestHead RequestHead RequestBody;
    /// Deletes what `save_session` stored.
    ClearSession(SessionPartParams) "clear_session" RequestHead RequestHead ResponseBody;
    /// Responds in the origin's place; in a response phase, replaces the response.
    Answer(Box<AnswerParams>) "answer" RequestHead RequestHead ResponseBody;
    /// Rejects the request with a status and a reason.
    Block(BlockParams) "block" Authority RequestHead ResponseBody;
    /// Redirects the client to another URL.
    Redirect(RedirectParams) "redirect" RequestHead RequestHead ResponseBody;
    /// Closes the client's connection without a response.
    Abort(NoParams) "abort" Authority RequestHead Message;
    /// Responds with the certificate of Interflow's CA.
    ServeCa(NoParams) "serve_ca" RequestHead RequestHead RequestBody;
    /// Adds header fields to the response.
    AddResponseHeader(TemplatePairs) "add_response_header" ResponseHead ResponseHead ResponseBody;
    /// Sets header fields of the response, replacing existing values.
    SetResponseHeader(TemplatePairs) "set_response_header" ResponseHead ResponseHead ResponseBody;
    /// Sets header fields of the response that are already present.
    UpdateResponseHeader(TemplatePairs) "update_response_header" ResponseHead ResponseHead ResponseBody;
    /// Removes header fields from the response; `X-*` removes all with that prefix.
    RemoveResponseHeader(NameList) "remove_response_header" ResponseHead ResponseHead ResponseBody;
    /// Replaces text in a header field of the response.
    ReplaceResponseHeader(ReplaceField) "replace_response_header" ResponseHead ResponseHead ResponseBody;
    /// Changes the status.
    SetStatus(TextTemplate) "set_status" ResponseHead ResponseHead ResponseBody;
    /// Sets a cookie on the client.
    SetResponseCookie(CookieLine) "set_response_cookie" ResponseHead ResponseHead ResponseBody;
    /// Makes the client delete cookies.
    RemoveResponseCookie(NameList) "remove_response_cookie" ResponseHead ResponseHead ResponseBody;
    /// Edits the body of the request.
    EditRequestBody(EditParams) "edit_request_body" RequestBody RequestBody RequestBody;
    /// Edits the body of the response; event streams event by event.
    EditResponseBody(EditParams) "edit_response_body" ResponseBody ResponseBody ResponseBody;
    /// Inserts HTML after the first opening tag of this name, also in compressed bodies.
    InjectHtml(InjectHtmlParams) "inject_html" ResponseBody ResponseBody ResponseBody;
    /// Edits a message of a WebSocket, event stream or gRPC stream.
    EditMessage(EditParams) "edit_message" Message Message Message;
    /// Injects a message after the matching one, in its direction or back to its sender.
    InjectMessage(InjectParams) "inject_message" Message Message Message;
    /// Drops a message.
    DropMessage(NoParams) "drop_message" Message Message Message;
    /// Delays the flow.
    Delay(DelayParams) "delay" Authority RequestHead Message;
    /// Limits the speed of bodies, each direction separately.
    Throttle(ThrottleParams) "throttle" RequestHead RequestHead ResponseHead;
    /// Ends the response's body after this many bytes, as if it were complete.
    TruncateResponse(ByteOffsetParams) "truncate_response" ResponseBody ResponseBody ResponseBody;
    /// Breaks the connection after this many bytes of the response's body.
    ResetResponse(ByteOffsetParams) "reset_response" ResponseBody ResponseBody ResponseBody;
    /// Breaks the upload after this many bytes of the request's body.
    ResetRequest(ByteOffsetParams) "reset_request" RequestBody RequestBody RequestBody;
    /// Flips a bit in about every this many bytes of the response's body.
    CorruptResponse(ByteOffsetParams) "corrupt_response" ResponseBody ResponseBody ResponseBody;
    /// Writes the response's body to a file while it is relayed.
    SaveResponseBody(TextTemplate) "save_response_body" ResponseBody ResponseBody ResponseBody;
    /// Adds a tag to the flow.
    Tag(TextTemplate) "tag" Authority Authority Message;
    /// Adds a comment to the flow.
    Comment(TextTemplate) "comment" Authority Authority Message;
    /// Marks the flow with a colour.
    Colour(OneOrManyStrings) "colour" Authority Authority Message;
    /// Sets variables of the flow.
    SetVariable(VariableParams) "set_variable" Authority Authority Message;
    /// Stores a part of the flow in a variable.
    Capture(CaptureParams) "capture" Authority RequestHead Message;
    /// Writes a line to the log.
    Log(LogParams) "log" Authority RequestHead Done;
    /// Writes a line to standard output.
    Print(TextTemplate) "print" Authority RequestHead Done;
    /// Writes a line to standard error.
    PrintError(TextTemplate) "print_error" Authority RequestHead Done;
    /// Appends a line to a file.
    AppendFile(AppendFileParams) "append_file" Authority RequestHead Done;
    /// Holds the flow, including its body, until someone decides in the UI, by API or on the command line.
    Hold(HoldParams) "hold" Authority RequestBody Message;
    /// Calls an external service, which may change, answer or deny the request and the response.
    Call(OneOrManyStrings) "call" RequestBody RequestBody ResponseBody;
    /// Runs a Lua script, which may change, answer or deny.
    Script(ScriptParams) "script" RequestHead RequestHead Message;
    /// Skips the remaining rules of this phase.
    Stop(NoParams) "stop" Authority Authority Message;
    /// Does nothing.
    Nothing(NoParams) "nothing" Authority Authority Done;
}

impl Action {
    /// Whether it only annotates the flow, so that it can be repeated for each request of a tunnel.
    pub(crate) const fn is_annotation(&self) -> bool {
        matches!(
            self,
            Self::Tag(_)
                | Self::Comment(_)
                | Self::Colour(_)
                | Self::SetVariable(_)
                | Self::Capture(_)
                | Self::Stop(_)
                | Self::Nothing(_)
        )
    }

    /// Whether it only annotates the flow, so that it may run in any phase and needs no mutable head.
    pub(crate) const fn only_annotates(&self) -> bool {
        self.is_annotation()
            || matches!(self, Self::Log(_) | Self::Print(_) | Self::PrintError(_) | Self::AppendFile(_))
    }
}

/// The error for an unknown name, with the closest known one.
fn unknown_action<E: de::Error>(name: &str) -> E {
    let names: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
    match interflow_query::closest_name(name, names.iter().copied()) {
        Some(_) => E::custom(unknown_key_message("action", name, &names)),
        None => E::custom(format!("unknown action `{name}`: `interflow rules list --actions` names them all")),
    }
}

impl<'de> ShapedValue<'de> for Action {
    const EXPECTED: &'static str = "an action: its name, or its name with its parameters";

    fn from_text<E: de::Error>(name: &str) -> Result<Self, E> {
        Action::bare(name)
    }

    fn from_map<A: de::MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let name: String = map.next_key()?.ok_or_else(|| de::Error::custom("an action is missing its name"))?;
        let action = Action::read(&name, &mut map)?;
        match map.next_key::<String>()? {
            None => Ok(action),
            Some(second) => Err(de::Error::custom(format!(
                "`{second}` beside `{name}`: write one action per entry of the list, with its parameters inside"
            ))),
        }
    }
}

written_schema!(Action, "Action", |g| {
    let names: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
    let mut forms = vec![json_schema!({ "type": "string", "enum": names })];
    for (action, schema) in schemas(g) {
        forms.push(json_schema!({
            "type": "object",
            "description": action.doc.trim(),
            "properties": { action.name: schema },
            "required": [action.name],
            "additionalProperties": false,
        }));
    }
    json_schema!({ "title": "action", "anyOf": forms })
});

/// One action or a list of them; a map with several actions keeps their order.
#[derive(Clone, Debug, Default)]
pub struct ActionList(pub Vec<Action>);

impl<'de> ShapedValue<'de> for ActionList {
    const EXPECTED: &'static str = "a list of actions, or one";

    fn from_text<E: de::Error>(name: &str) -> Result<Self, E> {
        Action::bare(name).map(|a| Self(vec![a]))
    }

    fn from_list<A: de::SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Self)
    }

    fn from_map<A: de::MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        // Several actions in one map, by name.
        let mut all = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            all.push(Action::read(&name, &mut map)?);
        }
        Ok(Self(all))
    }
}

written_schema!(ActionList, "Actions", |g| {
    let action = g.subschema_for::<Action>();
    json_schema!({ "title": "action, or list of actions", "anyOf": [action.clone(), { "type": "array", "items": action }] })
});

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Action>, String> {
        interflow_codec::document::from_yaml::<ActionList>(text).map(|a| a.0).map_err(|e| e.to_string())
    }

    #[test]
    fn actions_are_parsed_in_every_form() {
        for (text, names) in [
            ("abort", &["abort"][..]),
            ("[abort, {tag: x}]", &["abort", "tag"]),
            ("{tag: x, delay: 1s}", &["tag", "delay"]),
            ("- block: {status: 404}", &["block"]),
            ("- block", &["block"]),
        ] {
            let read: Vec<_> = read(text).unwrap().iter().map(|a| a.info().name).collect();
            assert_eq!(read, names, "{text}");
        }
    }

    #[test]
    fn invalid_definitions_are_reported_with_a_hint() {
        for (text, part) in [
            ("[abrot]", "did you mean `abort`?"),
            ("[zzzzzzzzzzzz]", "rules list --actions"),
            ("[tag]", "`tag` needs a value, such as `tag: checkout`"),
            ("[{tag: x, abort: {}}]", "one action per entry"),
            ("[{block: {stats: 1}}]", "unknown field `stats`"),
            ("[{delay: soon}]", "is not a duration"),
            ("[{set_request_header: {'X Y': 1}}]", "header name"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn every_example_is_its_action() {
        for action in ACTIONS {
            let read = read(&format!("- {}", action.example())).unwrap_or_else(|e| panic!("{}: {e}", action.name));
            assert_eq!(read.iter().map(|a| a.info().name).collect::<Vec<_>>(), [action.name], "{}", action.example());
        }
    }

    #[test]
    fn action_phases_are_ordered_and_names_unique() {
        let mut names: Vec<&str> = ACTIONS.iter().map(|a| a.name).collect();
        assert!(ACTIONS.iter().all(|a| a.earliest <= a.natural && a.natural <= a.latest));
        names.sort_unstable();
        assert!(names.windows(2).all(|n| n[0] != n[1]));
    }
}

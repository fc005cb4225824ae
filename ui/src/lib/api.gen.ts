// Generated from docs/reference/openapi.json by `npm run api`: do not edit.
import type { Micros, UnixMicros } from './time';

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        ActiveRule: {
            name: string;
            file: string;
            line: number;
            /** @description Its condition in one line. */
            when: string;
            actions: components["schemas"]["RuleAction"][];
            enabled: boolean;
            /** @description How often it matched since it was loaded. */
            matches: number;
        };
        /** @description One stream, for display. */
        ActiveStream: {
            /** @description Its number. */
            id: number;
            /** @description `stream`, `segment`, `playlist`, … */
            kind: string;
            /** @description Scheme, host and port it comes from. */
            origin: string;
            /** @description The client's address. */
            client: string;
            /** @description The user. */
            user: string | null;
            /** @description When it began, in microseconds since 1970. */
            started: number;
            /** @description Bytes sent on. */
            bytes: number;
            /** @description Bytes per second since the last query. */
            rate: number;
        };
        /** @description Changes to tags and comment; what is absent stays. */
        AnnotationPatch: {
            /**
             * @description Replaces all tags.
             * @default null
             */
            tags?: string[] | null;
            /** @default [] */
            add_tags?: string[];
            /** @default [] */
            remove_tags?: string[];
            /** @default null */
            comment?: string | null;
        };
        /** @description An API format, named after its creator; other providers may use it. */
        ApiFormat: ("anthropic" | "chat" | "responses" | "gemini" | "converse") | "interactions" | "ollama";
        /** @description A token without its secret. */
        ApiToken: {
            id: string;
            name: string;
            kind: components["schemas"]["TokenKind"];
            role: components["schemas"]["Role"];
            /**
             * @description Whether it may read bodies although its role may not.
             * @default false
             */
            read_bodies: boolean;
            /** @description Who made it. */
            created_by: string;
            /** @description The person as the issuer names them: whose personal token it is, or who made it for a service. */
            subject?: string;
            created: components["schemas"]["Timestamp"];
            /** @description Absent if it does not expire. */
            expires?: components["schemas"]["Timestamp"];
            /** @description Its last use, to a minute; absent if it was never used. */
            last_used?: components["schemas"]["Timestamp"];
        };
        /** @description What changes did. */
        AppliedSettings: {
            file: string;
            changes: components["schemas"]["ChangedSetting"][];
            reload: components["schemas"]["ReloadReport"];
        };
        ApplyInput: {
            /**
             * @description The rule file to which they are added; the only one if absent.
             * @default null
             */
            file?: string | null;
        };
        /** @description A rule's decision. */
        ApprovalAction: "allow" | "deny";
        /** @description Requests that are no longer pending, the latest first. Only those since the start. */
        ApprovalHistory: {
            answers: components["schemas"]["ResolvedQuestion"][];
        };
        /** @description What happens to a flow that no rule decides, and whether rules are enforced. */
        ApprovalMode: "observe" | "ask" | "enforce";
        /** @description A rule. Empty fields match everything. */
        ApprovalRule: {
            id: string;
            source: components["schemas"]["ApprovalRuleSource"];
            removable: boolean;
            /** @description How often it decided since the start. */
            used: number;
            /** @description When it was created; for a configured rule, when the configuration was read. */
            created: components["schemas"]["Timestamp"];
            /** @description When it last decided since the start. */
            last_used: components["schemas"]["Timestamp"] | null;
            /** @description The decision. */
            action: components["schemas"]["ApprovalAction"];
            /**
             * @description Host patterns: `example.com` (this name only), `*.example.com` (its subdomains only), `.example.com` (both),
             *     addresses, networks (`10.0.0.0/8`), each with an optional `:port`. None: every host; an `allow` rule without any other
             *     condition must say so with `*`.
             */
            hosts?: string[];
            /** @description Ports and port ranges: `443`, `8000-8999`. */
            ports?: string[];
            /** @description Methods: `GET`. */
            methods?: string[];
            /** @description Globs over the path without its query: `/repos/*`. Such a rule applies only to requests that can be inspected. */
            paths?: string[];
            /** @description Users of the proxy. In names of users, agents, processes, containers and sessions, `*` matches any characters. */
            users?: string[];
            /** @description Agents: the name that a session declares, or else the client's user, container or process. */
            agents?: string[];
            /** @description Processes of clients on this machine, by the names of their executables. */
            processes?: string[];
            /** @description Docker or Podman containers of clients, by name. */
            containers?: string[];
            /** @description Agent sessions, by id. */
            sessions?: string[];
            /** @description Expiry, as RFC 3339: `2027-01-31T12:00:00Z`. */
            until?: string;
            /** @description A description. */
            note?: string;
        };
        /** @description The origin of a rule, in ascending precedence. */
        ApprovalRuleSource: "builtin" | "session" | "global";
        ApprovalRules: {
            rules: components["schemas"]["ApprovalRule"][];
        };
        /** @description Pending requests, and the active mode. */
        ApprovalsView: {
            mode: components["schemas"]["ApprovalMode"];
            /** @description When a temporary mode ends; null if it is the configured one, or does not end by itself. */
            mode_until: components["schemas"]["Timestamp"] | null;
            mode_is_configured: boolean;
            /** @description Increases with each change. */
            version: number;
            /** @description How long a request waits before it is denied. */
            timeout: components["schemas"]["Microseconds"];
            pending: components["schemas"]["PendingRequest"][];
        };
        /** @description The state of an archive, for people and metrics. */
        ArchiveProgress: {
            /** @description The URL of the place, without secrets. */
            place: string;
            /** @description Flows that began before are archived, but for `open_flows`. */
            archived_to: components["schemas"]["Timestamp"] | null;
            /** @description Flows archived so far. */
            flows: number;
            files: number;
            /** @description Bytes written, of files that were merged since as well. */
            bytes: number;
            /** @description Flows of archived hours that were still in progress. */
            open_flows: number;
            /** @description When the last run without an error began. */
            last_success: components["schemas"]["Timestamp"] | null;
            /** @description Why the last run failed, if it did. */
            last_error: string | null;
            /** @description The instance that archives for all that share the store; null if there is none, or the store is not shared. */
            replica: string | null;
        };
        /** @description What the response should be. */
        Assertion: {
            kind: components["schemas"]["AssertionKind"];
            /**
             * @description The name of the header field, or the path in the JSON; nothing for the status.
             * @default
             */
            at: string;
            expected: string;
        };
        /** @description What the response should be. */
        AssertionInput: {
            kind: components["schemas"]["AssertionKind"];
            /**
             * @description The name of the header field, or the path in the JSON; nothing for the status.
             * @default
             */
            at?: string;
            expected: string;
        };
        /** @enum {string} */
        AssertionKind: "status" | "header" | "json";
        Attachment: {
            /** @description Empty if unknown. */
            media_type?: string;
            /** @description A URL or a file's id, if it was referenced rather than sent. */
            url?: string;
            /** @description Its title or file name. */
            title?: string;
            /** @description Length of the base64 (or text) that was sent, in bytes. */
            size?: number;
            /** @description BLAKE3 of the data, the first 16 hexadecimal digits: equal for the same image. */
            hash?: string;
        };
        /** @description One attempt at sending a client's request. */
        Attempt: {
            /** @description The provider, by its name in the configuration. */
            provider: string;
            /** @description The deployment's name in its route; for a provider without one, the provider's. */
            deployment: string;
            /** @description The model that was asked for there. */
            model?: string;
            /** @description Host of the request, and the port if it is not the scheme's. */
            host: string;
            /** @description Path of the request, without its query. */
            path: string;
            state: components["schemas"]["AttemptState"];
            /**
             * @description Whether it was sent beside an earlier one because that was slow.
             * @default false
             */
            hedge: boolean;
            /** @description Status of the response. */
            status?: number;
            /** @description The label of the error's kind, such as `upstream_timeout`. An attempt that served the client may have failed later. */
            error?: string;
            /** @description What failed; for a response, the provider's code of the error. */
            message?: string;
            /** @description When it was sent, in microseconds after the flow's start. */
            started: number;
            /** @description When the head of its response arrived, in microseconds after the flow's start. */
            first_byte?: number;
            /** @description When it ended, in microseconds after the flow's start. */
            ended?: number;
            /** @description Input tokens that are charged, those of a cache included. */
            input_tokens?: number;
            /** @description Output tokens that are charged. */
            output_tokens?: number;
            /**
             * @description Whether the tokens were counted or estimated, because the provider did not report them.
             * @default false
             */
            estimated: boolean;
            /** @description Cost in millionths of a dollar, if the price is known. */
            cost?: number;
        };
        AttemptState: "running" | "served" | "failed" | "cancelled";
        /** @description Lines of the audit trail, the latest first. */
        AuditPage: {
            records: components["schemas"]["AuditRecord"][];
            /** @description `before` of the next page; null on the last one. */
            next: number | null;
        };
        /** @description Who looked at or changed something. */
        AuditRecord: {
            /** @description RFC 3339, UTC. */
            time: string;
            /** @description The same, in microseconds since the Unix epoch. */
            at: number;
            /**
             * @description Who it was: a person, or a token's name; empty before a login.
             * @default
             */
            actor: string;
            /**
             * @description `admin-token`, `person`, `personal-token` or `service-token`.
             * @default
             */
            actor_kind: string;
            /** @description The person, as the issuer names them, or the token's id. */
            actor_id?: string;
            /** @default  */
            role: string;
            /** @default  */
            client_ip: string;
            /** @description The operation, such as `GET /flows/{id}/{side}/body`, or `login`. */
            operation: string;
            /** @description The path that was asked for, with its query. */
            target: string;
            /** @description The status of the response. */
            status: number;
            /** @description What was changed, if the path does not say it. */
            detail?: unknown;
            /** @description The replica that answered, where several share a store. */
            replica?: string;
        };
        /** @description Host and port of an origin, both known: a missing port was replaced by the scheme's default. */
        Authority: string;
        /** @description Metadata of a body; its bytes are read separately by flow id and direction. */
        Body: {
            /** @description Size as transferred: transfer coding removed, content coding kept. */
            size: number;
            /** @description Bytes recorded, always from the beginning of the body. */
            kept: number;
            /** @description Why `kept` is less than `size`, if it is. */
            missing?: components["schemas"]["MissingReason"];
            /** @description SHA-256 of the kept bytes, if only a head was recorded. */
            head_sha256?: string;
        };
        /** @description The difference between two decoded bodies. */
        BodyDiff: {
            /** @constant */
            kind: "same";
        } | {
            /** @constant */
            kind: "json";
            /** @description In the order of the first body. */
            changes: components["schemas"]["FlowChange"][];
        } | {
            /** @constant */
            kind: "lines";
            /** @description In order. */
            lines: components["schemas"]["DiffLine"][];
        } | {
            /** @constant */
            kind: "binary";
            before: number;
            after: number;
        };
        /** @description The representation of a body. */
        BodyView: "raw" | "decoded" | "text" | "hex" | "json-pretty" | "pretty";
        /**
         * @description Why a branch starts.
         * @enum {string}
         */
        BranchReason: "edited" | "retried" | "compacted" | "cleared";
        /** @description In the order of the prompt: the first difference ends the cached beginning. */
        BreakCause: ("model" | "tools" | "tool_order" | "system" | "history") | "volatile_system" | "expired" | "evicted" | "unmarked" | "unknown";
        /** @description A browser to start on the machine of the instance. */
        BrowserRequest: {
            /** @description Name of an installed browser; the preferred one if absent. */
            browser?: string | null;
        };
        /** @description A program with an active bypass. */
        BypassedClient: {
            /** Format: ip */
            client: string;
            ja4: string;
            /** @description The name of its process, if known. */
            process?: string;
            host: string;
            /** @description Seconds until it is intercepted again. */
            seconds_left: number;
        };
        BypassedClients: {
            clients: components["schemas"]["BypassedClient"][];
        };
        /** @description Bytes: a string if they are UTF-8, else `{"base64": "…"}`. */
        Bytes: string | {
            base64: string;
        };
        CaView: {
            name: string;
            fingerprint_sha256: string;
            not_after: components["schemas"]["Timestamp"];
            /** @description The certificate in PEM form, without its key. */
            pem: string;
            /** @description Leaf certificates signed since the start. */
            leaves_signed: number;
            leaves_cached: number;
        };
        CacheAdvice: {
            cause: components["schemas"]["BreakCause"];
            breaks: number;
            lost_tokens: number;
            /**
             * Format: double
             * @description In US dollars, where the price is known.
             */
            lost_cost: number;
            /** @description What to change, in a sentence. */
            text: string;
        };
        /** @description A call that found less in the cache than the one before had left there. */
        CacheBreak: {
            flow: string;
            /** @description For a WebSocket, the number of the message that started the call; else 0. */
            part: number;
            turn: number;
            /** @description In microseconds since the Unix epoch. */
            started: number;
            lost_tokens: number;
            /**
             * Format: double
             * @description In US dollars; `None` if the price is unknown.
             */
            lost_cost: number | null;
            cause: components["schemas"]["BreakCause"];
            /** @description What it was, in a sentence. */
            detail: string;
            /** @description The text around the first difference, in the request before and in this one. */
            change?: components["schemas"]["ExcerptChange"];
        };
        CallMessagesInput: {
            /** @description Encoded messages, without the prefix of gRPC. */
            messages?: components["schemas"]["ReplayBody"][];
            /**
             * @description Whether they are the last (half-close).
             * @default false
             */
            end?: boolean;
        };
        CallPurpose: "step" | "compact" | "title" | "probe" | "utility";
        /** @description Usage of one call. Streams repeat it; the last count applies. */
        CallUsage: {
            /**
             * @description Input tokens, including those read from and written to a cache, and those of images and audio.
             * @default 0
             */
            input: number;
            /**
             * @description Output tokens, including reasoning.
             * @default 0
             */
            output: number;
            /**
             * @description The part of `input` read from a cache.
             * @default 0
             */
            cache_read: number;
            /**
             * @description The part of `input` written to a cache.
             * @default 0
             */
            cache_write: number;
            /**
             * @description The part of `output` used for reasoning.
             * @default 0
             */
            reasoning: number;
        };
        CallView: {
            flow: string;
            /** @description For a WebSocket, the number of the message that started the call; else 0. */
            part: number;
            /** @description In microseconds since the Unix epoch. */
            started: number;
            model: string;
            /** @description Token usage; `None` if the provider did not report it. */
            usage: components["schemas"]["CallUsage"] | null;
            /**
             * Format: double
             * @description US dollars; `None` if the price is unknown.
             */
            cost: number | null;
            /**
             * Format: double
             * @description Output tokens per second, from the first byte to the end.
             */
            speed: number | null;
            /** @description The cache returned less than the preceding call had written or read: the prefix changed, or the entry expired. */
            missed: boolean;
            /** @default step */
            purpose: components["schemas"]["CallPurpose"];
            /** @default 0 */
            turn: number;
            /**
             * @description The response's status; 0 if there was no response.
             * @default 0
             */
            status: number;
            /**
             * @description Microseconds from the start until the end of the response.
             * @default 0
             */
            duration: number;
            /** @description Microseconds from the start until the first byte of the response. */
            first_byte?: number;
            /** @description The provider's stop reason, in its own words. */
            stop?: string;
            error?: string;
            /**
             * @description Whether the reply has come to its end.
             * @default false
             */
            complete: boolean;
            /** @default false */
            stream: boolean;
            /**
             * @description The usage is known: reported by the provider, or estimated by the gateway.
             * @default false
             */
            counted: boolean;
            /**
             * @description The usage, or a part of it, was estimated by the gateway, because the provider did not report it.
             * @default false
             */
            estimated: boolean;
            /** @description A message's hash, serialized as 32 hexadecimal digits. */
            asked?: string;
            /** @description A message's hash, serialized as 32 hexadecimal digits. */
            answer?: string;
            /**
             * @description Number of messages in the request's history.
             * @default 0
             */
            history: number;
            /**
             * @description Number of new messages among them.
             * @default 0
             */
            fresh: number;
            /** @default 0 */
            tools: number;
            /**
             * @description Length of the system prompt in characters.
             * @default 0
             */
            system: number;
            /** @description The beginning of the reply, for auxiliary calls. */
            note?: string;
        };
        /** @description The tool call of a conversation that a flow carried. */
        CarriedCall: {
            /** @description Null if the flow carried none, or if more than one fits. */
            call: components["schemas"]["CarriedToolCall"] | null;
        };
        /** @description The tool call that a flow carried. */
        CarriedToolCall: {
            conversation: string;
            agent: string;
            title: string;
            /** @description The key of the message with the call. */
            message: string;
            /** @description The tool as the model named it. */
            tool: string;
        };
        CertificateView: {
            subject: string;
            issuer: string;
            /** @description The names that it is valid for (SAN): DNS names, addresses and others. */
            names: string[];
            /** @description Names that were left out. */
            more_names: number;
            not_before: components["schemas"]["Timestamp"];
            not_after: components["schemas"]["Timestamp"];
            /** @description The key's algorithm with its size or curve: `RSA 2048`, `EC P-256`. */
            key: string;
            /** @description The algorithm of the signature: `ecdsa-with-SHA256`. */
            signature: string;
            /** @description The serial number in hex. */
            serial: string;
            /** @description Whether it may issue certificates. */
            authority: boolean;
            /** @description Whether subject and issuer are the same: a root, or a self-signed certificate of a server. */
            self_signed: boolean;
            /** @description SHA-256 of the certificate, in hex. */
            sha256: string;
            /** @description The certificate in DER, in base64. */
            der: string;
        };
        ChangedMessage: {
            /** @description Its index in the history, from 0: for removed messages in the old one, for added ones in the new one. */
            index: number;
            role: components["schemas"]["MessageRole"];
            blocks: components["schemas"]["ContentBlock"][];
        };
        /** @description A setting before and after a change, with credentials masked. */
        ChangedSetting: {
            key: string;
            before: unknown;
            after: unknown;
            effect: components["schemas"]["SettingEffect"];
        };
        CheckedPolicy: {
            ok: boolean;
            /** @description The policy's name, if it is valid. */
            name: string | null;
            problems: components["schemas"]["PolicyProblem"][];
        };
        CheckedQuery: {
            ok: boolean;
            /** @description The query in its canonical form, if it is valid. */
            query?: string;
            /** @description Whether it selects every flow. */
            all?: boolean;
            /** @description What in it is probably not meant, such as an operator in lower case, which is searched as a word. */
            hint?: string;
            /** @description A query that was probably meant, if this one selects nothing. */
            did_you_mean?: string;
            error?: components["schemas"]["ErrorDetails"];
        };
        CheckedRules: {
            ok: boolean;
            problems: components["schemas"]["RuleProblem"][];
            rules: components["schemas"]["RulesView"] | null;
        };
        /** @description A conversation with its token usage. */
        ChildConversation: {
            id: string;
            /** @description Groups related conversations: the client's own session id, or an id derived from the connection. */
            session: string;
            /** @description The conversation that started this one, if it belongs to a sub-agent. */
            parent?: string;
            /** @description When its first exchange started. */
            started: components["schemas"]["Timestamp"];
            /** @description When its last exchange ended, by which lists are sorted. */
            updated: components["schemas"]["Timestamp"];
            /** @description The client program, such as `claude-code`. */
            agent: string;
            /** @description The model of the most recent response. */
            model: string;
            /** @description The provider whose API is used. */
            provider: string;
            host: string;
            user?: string;
            title: string;
            /** @description Number of prompts on the path to its last response; 0 if it contains only utility calls. */
            turns: number;
            used: components["schemas"]["TokenUsage"];
            /** @description Exchanges whose prompt left with findings that redaction would have replaced. */
            unredacted: number;
            /** @description The operator's tags and comments; the one without a message is of the conversation itself. */
            notes?: components["schemas"]["ConversationNote"][];
            link: components["schemas"]["SubagentLink"] | null;
        };
        Client: {
            /** @description Connection number, unique within the recording process. */
            connection: number;
            peer: string | null;
            /** @description The local address that accepted the connection. */
            local: string | null;
            listener: string;
            accepted: components["schemas"]["Timestamp"];
            /** @description TLS parameters, if TLS was terminated here; absent for plain HTTP and for tunnels that were passed through. */
            tls?: components["schemas"]["ClientTls"];
            /** @description Akamai fingerprint of its HTTP/2 connection preface. */
            http2?: string;
            /** @description JA4H fingerprint of the request. */
            ja4h?: string;
            /** @description The client process, if lookup is enabled and found it. */
            process?: components["schemas"]["Process"];
            /** @description The name of the client's Docker or Podman container, if lookup is enabled and found it. */
            container?: string;
        };
        ClientCommand: {
            subscribe: {
                query: string;
                /** @default 0 */
                generation?: number;
            };
        } | {
            pause: boolean;
        };
        /** @description TLS parameters and fingerprints of the downstream side. */
        ClientTls: {
            /** @description The requested server name (SNI). */
            sni?: string;
            /** @description Negotiated protocol version, such as `TLSv1.3`. */
            version?: string;
            cipher?: string;
            alpn_offered?: string[];
            alpn?: string;
            /** @description JA3 fingerprint (MD5 in hex). */
            ja3?: string;
            ja4?: string;
        };
        CodeResult: {
            code: string;
        };
        /** @description A file of requests, with the values of their variables. */
        Collection: {
            /** @default [] */
            variables: components["schemas"]["Variable"][];
            environments?: components["schemas"]["Environment"][];
            /** @default [] */
            requests: components["schemas"]["ComposedRequest"][];
        };
        CollectionEntry: {
            name: string;
            size: number;
            /** @description When it was changed last, in microseconds since 1970. */
            modified: number;
        };
        /** @description A file of requests, with the values of their variables. */
        CollectionInput: {
            /** @default [] */
            variables?: components["schemas"]["Variable"][];
            environments?: components["schemas"]["EnvironmentInput"][];
            /** @default [] */
            requests?: components["schemas"]["ComposedRequestInput"][];
        };
        CollectionUpdate: {
            collection: components["schemas"]["CollectionInput"];
            /** @description The revision that was read; without one, the collection must be new. */
            revision?: string | null;
        };
        /** @description A collection, and what a change of it must be based on. */
        CollectionView: {
            revision: string;
            collection: components["schemas"]["Collection"];
        };
        Collections: {
            collections: components["schemas"]["CollectionEntry"][];
        };
        /** @description What may replace the end of the query. */
        Completion: {
            /** @description Where the replaced text begins, in bytes. */
            start: number;
            text: string;
            doc: string;
        };
        Completions: {
            completions: components["schemas"]["Completion"][];
        };
        ComposeHistory: {
            /** @description The latest first. */
            requests: components["schemas"]["ComposedRequest"][];
        };
        /** @description A request to send, with every variable replaced. */
        ComposeInput: {
            method: string;
            url: string;
            /**
             * @description Names and values, in order. Fields of the connection and of the body's length are left to the sender.
             * @default []
             */
            headers?: [
                string,
                string
            ][];
            body?: components["schemas"]["ReplayBody"] | null;
            /** @description The request as written, which the history keeps. */
            saved?: components["schemas"]["ComposedRequestInput"] | null;
        };
        /** @description The outcome: a response or an error. A failed request is a regular result of the call. */
        ComposeResult: {
            /** @description The recorded flow. */
            id: string;
            response?: components["schemas"]["ReplayedResponse"];
            error?: components["schemas"]["ReplayError"];
        };
        /** @description A request as the operator wrote it: its texts may contain variables, `{{name}}`. */
        ComposedRequest: {
            /** @default  */
            name: string;
            method: string;
            url: string;
            /** @default [] */
            headers: [
                string,
                string
            ][];
            /** @default  */
            body: string;
            /** @default [] */
            assertions: components["schemas"]["Assertion"][];
        };
        /** @description A request as the operator wrote it: its texts may contain variables, `{{name}}`. */
        ComposedRequestInput: {
            /** @default  */
            name?: string;
            method: string;
            url: string;
            /** @default [] */
            headers?: [
                string,
                string
            ][];
            /** @default  */
            body?: string;
            /** @default [] */
            assertions?: components["schemas"]["AssertionInput"][];
        };
        ConfigView: {
            /** @description Its sections, as in the configuration file, with secrets masked. */
            config: {
                [key: string]: unknown;
            };
        };
        /** @description A part of a message, in the form that all API formats are translated to. */
        ContentBlock: {
            /** @constant */
            type: "text";
            text: string;
        } | {
            /** @constant */
            type: "thinking";
            text: string;
        } | {
            /** @constant */
            type: "tool_use";
            /** @description The call's id; empty if the format has none. */
            id?: string;
            name: string;
            /** @description Its arguments; a string if they are not JSON. */
            input: unknown;
        } | {
            /** @constant */
            type: "tool_result";
            /** @description The call's id; empty if the format has none. */
            id?: string;
            /** @description The tool's name, if the format includes it. */
            name?: string;
            content: components["schemas"]["ContentBlock"][];
            /** @description Whether the tool reported a failure. */
            is_error?: boolean;
        } | (components["schemas"]["Attachment"] & {
            /** @constant */
            type: "image";
        }) | (components["schemas"]["Attachment"] & {
            /** @constant */
            type: "document";
        }) | {
            /** @constant */
            type: "error";
            /** @description The provider's error type, or the HTTP status. */
            kind: string;
            message: string;
        } | {
            /** @constant */
            type: "other";
            /** @description The API format's name for it. */
            kind: string;
            /** @description The original value. */
            value: unknown;
        };
        /** @description The operator's tags and comment on a conversation, or on one of its messages. */
        ConversationNote: {
            /** @description The key of the message, 32 hexadecimal digits; absent for the conversation as a whole. */
            message?: string;
            tags?: string[];
            comment?: string;
        };
        /** @description The tags and comments of a conversation. */
        ConversationNotes: {
            notes: components["schemas"]["ConversationNote"][];
        };
        ConversationPage: {
            conversations: components["schemas"]["ListedConversation"][];
            /** @description The cursor for the next page; null on the last one. */
            next: string | null;
            /** @description What in the query is probably not meant, such as an operator in lower case, which is searched as a word. */
            warnings?: string[];
        };
        /** @description Changes to tags and comment of a conversation; what is absent stays. */
        ConversationPatch: {
            /**
             * @description The key of the message to change; the conversation itself if absent.
             * @default null
             */
            message?: string | null;
            /**
             * @description Replaces all tags.
             * @default null
             */
            tags?: string[] | null;
            /** @default [] */
            add_tags?: string[];
            /** @default [] */
            remove_tags?: string[];
            /** @default null */
            comment?: string | null;
        };
        /** @description Usage of one user, agent and model within a time bucket. */
        ConversationTotal: {
            /** @description Start of the bucket, in microseconds since the Unix epoch. */
            from: number;
            agent: string;
            model: string;
            /** @description The user, or the virtual key that was used; empty if unknown. */
            user: string;
            /** @description Exchanges that ended with an error. */
            failed: number;
            used: components["schemas"]["TokenUsage"];
        };
        /** @description A conversation with its token usage. */
        ConversationView: {
            id: string;
            /** @description Groups related conversations: the client's own session id, or an id derived from the connection. */
            session: string;
            /** @description The conversation that started this one, if it belongs to a sub-agent. */
            parent?: string;
            /** @description When its first exchange started. */
            started: components["schemas"]["Timestamp"];
            /** @description When its last exchange ended, by which lists are sorted. */
            updated: components["schemas"]["Timestamp"];
            /** @description The client program, such as `claude-code`. */
            agent: string;
            /** @description The model of the most recent response. */
            model: string;
            /** @description The provider whose API is used. */
            provider: string;
            host: string;
            user?: string;
            title: string;
            /** @description Number of prompts on the path to its last response; 0 if it contains only utility calls. */
            turns: number;
            used: components["schemas"]["TokenUsage"];
            /** @description Exchanges whose prompt left with findings that redaction would have replaced. */
            unredacted: number;
            /** @description The operator's tags and comments; the one without a message is of the conversation itself. */
            notes?: components["schemas"]["ConversationNote"][];
            version: string;
            link: components["schemas"]["SubagentLink"] | null;
            children: components["schemas"]["ChildConversation"][];
            thread: components["schemas"]["ThreadView"];
        };
        /** @description What is counted separately. */
        CountBy: "global" | "key" | "user" | "route" | "provider" | "model" | "client" | "team" | "organisation" | "tag";
        /** @description Current value of a counter, for display in the UI and the API. */
        CounterSnapshot: {
            rule: string;
            /** @description The party counted. */
            who: string;
            /** @description `requests`, `tokens`, `concurrent`, `tokens_per_day`, … */
            counter: string;
            /**
             * Format: double
             * @description Used amount: tokens missing from a bucket, slots taken, or the sum of a budget.
             */
            used: number;
            /**
             * Format: double
             * @description The limit; in dollars for money.
             */
            limit: number;
        };
        CreatedKey: {
            id: string;
            /** @description The key itself. It is shown this once, because only its hash is stored. */
            key: string;
        };
        /** @description A new token with its text, which is shown this once. */
        CreatedToken: {
            token: components["schemas"]["ApiToken"];
            /** @description The token itself. */
            secret: string;
        };
        CredentialRequest: {
            user: string;
        };
        DecidedFlow: {
            held: components["schemas"]["HeldFlow"];
        };
        /** @description What a decision did. */
        DecidedItem: {
            id: string;
            flows: number;
            /** @description The approval rule that was created with the decision, if any. */
            rule: components["schemas"]["ApprovalRule"] | null;
        };
        DeletedFlows: {
            deleted: number;
        };
        /** @description What a deployment is used for. */
        DeploymentRole: "deployment" | "experiment" | "shadow";
        /** @description Whether a deployment is used. */
        DeploymentState: ("healthy" | "cooling-down") | "probing";
        /** @description A deployment and its state, on this instance and since its start. */
        DeploymentView: {
            /** @description `provider`, or `provider/model`. */
            name: string;
            provider: string;
            /** @description The model's name at the provider; null: the client's. */
            model: string | null;
            role: components["schemas"]["DeploymentRole"];
            weight: number;
            priority: number;
            state: components["schemas"]["DeploymentState"];
            /** @description Seconds until it is used again; null unless it is cooling down. */
            cooling_down_for: number | null;
            /** @description Requests in progress. */
            busy: number;
            /**
             * Format: float
             * @description The average time to the first data of a response, in milliseconds; null before the first.
             */
            latency_ms: number | null;
            requests: number;
            errors: number;
            /** @description Those of the errors that were time limits. */
            timeouts: number;
            /** @description How often it was left alone after failures, or because it asked for that. */
            cooldowns: number;
        };
        /** @description Descriptor sets (`google.protobuf.FileDescriptorSet`), encoded, in base64. */
        DescriptorSets: {
            descriptor_sets: string[];
        };
        DiffLine: {
            side: components["schemas"]["DiffSide"];
            text: string;
        };
        /** @description Which of the two texts contains a line. */
        DiffSide: ("both" | "before" | "after") | "gap";
        /**
         * @description The direction in which data travels, seen from the client: requests go to the origin, responses come from it.
         * @enum {string}
         */
        Direction: "request" | "response";
        DoctorFinding: {
            what: string;
            state: components["schemas"]["FindingState"];
            text: string;
        };
        DoctorReport: {
            findings: components["schemas"]["DoctorFinding"][];
        };
        /** @description An override for an endpoint. Patterns are case-insensitive, and `*` matches any characters. */
        EndpointOverride: {
            /** @description Its id. */
            id: number;
            /** @description The origin's host, without the port. */
            host: string;
            /** @description The path, without the query. */
            path: string;
            /** @description The method, or `*` for all; that of a WebSocket is `GET`. */
            method: string;
            /** @description The API format at the endpoint. */
            format: components["schemas"]["ApiFormat"];
            /** @description The matching override with the highest priority applies; of two equal ones, that with the lower id. */
            priority: number;
            enabled: boolean;
        };
        EndpointOverrideList: {
            endpoints: components["schemas"]["EndpointOverride"][];
        };
        /** @description How a request or tunnel reached the proxy. */
        EntryKind: "absolute" | "connect" | "socks5" | "transparent" | "reverse" | "gateway" | "internal";
        /** @description A named set of variables, such as those of a staging server. They replace the collection's variables of the same name. */
        Environment: {
            name: string;
            /** @default [] */
            variables: components["schemas"]["Variable"][];
        };
        /** @description A named set of variables, such as those of a staging server. They replace the collection's variables of the same name. */
        EnvironmentInput: {
            name: string;
            /** @default [] */
            variables?: components["schemas"]["Variable"][];
        };
        ErrorBody: {
            error: components["schemas"]["ErrorDetails"];
        };
        /** @description What went wrong. */
        ErrorDetails: {
            /** @description A constant name, such as `not_found`. */
            kind: string;
            message: string;
            remedy?: string;
            /** @description Of a query: where the error begins, in characters from 1. */
            column?: number;
            /** @description Of a query: where the error begins, in bytes from 0. */
            start?: number;
            /** @description Of a query: where the error ends, in bytes from 0. */
            end?: number;
            /** @description Of an import: flows imported before the error. */
            imported?: number;
            /** @description The files that exist, if the named one does not. */
            files?: string[];
            /** @description Of rules or a policy: every error with its position. */
            problems?: components["schemas"]["TextProblem"][];
        };
        /** @description A message to the client. Those about a query carry the client's number of it. */
        EventMessage: {
            /** @constant */
            type: "hello";
            version: string;
        } | {
            /** @constant */
            type: "subscribed";
            /** @description The query in its canonical form. */
            query: string;
            generation: number;
        } | {
            /** @constant */
            type: "paused";
            paused: boolean;
        } | {
            /** @constant */
            type: "flows";
            flows: components["schemas"]["FlowSummary"][];
            generation: number;
        } | {
            /** @constant */
            type: "lag";
            /** @description Batches of the recorder, of an unknown number of flows. */
            batches: number;
            flows: number;
            generation: number;
        } | {
            /** @constant */
            type: "error";
            error: components["schemas"]["ErrorDetails"];
            /** @description Absent unless a query was wrong. */
            generation?: number;
        };
        ExcerptChange: {
            before: string;
            after: string;
        };
        /** @description Why each rule did or did not match a flow. */
        ExplainedRules: {
            flow: string;
            rules: components["schemas"]["RuleExplanation"][];
        };
        /** @description Flows to export, and how. */
        ExportSelectionInput: {
            ids: string[];
            /** @description As for `GET /export`: har by default. */
            format?: string | null;
            /** @description As for `GET /export`: the side whose packets pcapng shows. */
            leg?: string | null;
            /**
             * @description As for `GET /export`: with jsonl, the received versions too.
             * @default false
             */
            originals?: boolean;
            /**
             * @description As for `GET /export`: with parquet, the recorded bodies too.
             * @default false
             */
            bodies?: boolean;
        };
        /** @enum {string} */
        FindingState: "good" | "notice" | "bad";
        FindingsHistory: {
            /** @description Start of the first bucket, in microseconds since the Unix epoch. */
            since: number;
            /** @description Length of a bucket, in microseconds. */
            span: number;
            found: components["schemas"]["FoundKind"][];
        };
        /**
         * @description The certificates of both sides, leaf first. A list is empty without TLS, for imported flows, and for flows recorded
         *     by an earlier version.
         */
        FlowCertificates: {
            /** @description What Interflow presented to the client. */
            client: components["schemas"]["CertificateView"][];
            /** @description What the origin presented. */
            upstream: components["schemas"]["CertificateView"][];
        };
        FlowChange: {
            /** @description The location: a fact's or header's name, or a path in a JSON body (`messages[2].content`). */
            at: string;
            /** @description The value in the first flow. */
            before?: string;
            /** @description The value in the second flow. */
            after?: string;
        };
        FlowComparison: {
            a: string;
            b: string;
            equal: boolean;
            /** @description Method, URL, versions, status, error. */
            head: components["schemas"]["FlowChange"][];
            /** @description The request's fields, by name. */
            request_headers: components["schemas"]["FlowChange"][];
            request_body: components["schemas"]["BodyDiff"];
            /** @description The response's fields, by name. */
            response_headers: components["schemas"]["FlowChange"][];
            response_body: components["schemas"]["BodyDiff"];
        };
        /** @description The columns of the traffic table for a flow that carries a model call. */
        FlowConversation: {
            conversation: string;
            agent: string;
            model: string;
            input: number;
            output: number;
            /**
             * Format: double
             * @description US dollars; null if a price is unknown.
             */
            cost: number | null;
        };
        /** @description The conversations of flows, by the flow's id; flows without a model call are absent. */
        FlowConversations: {
            flows: {
                [key: string]: components["schemas"]["FlowConversation"];
            };
        };
        FlowCount: {
            count: number;
            /** @description As for the list of flows. */
            warnings?: string[];
        };
        /** @description One flow with its heads and derived fields. */
        FlowDetail: {
            id: components["schemas"]["FlowId"];
            state: components["schemas"]["FlowState"];
            kind: components["schemas"]["FlowKind"];
            started: components["schemas"]["Timestamp"];
            /** @description How the client addressed the proxy. */
            transport: components["schemas"]["EntryKind"];
            scheme: components["schemas"]["Scheme"];
            authority: components["schemas"]["Authority"];
            user?: string;
            client: components["schemas"]["Client"];
            /** @description The upstream side, if a connection was made. */
            upstream?: components["schemas"]["Upstream"];
            /** @description The request; absent for a tunnel. */
            request?: components["schemas"]["Request"];
            /** @description Interim responses (1xx) that were relayed, in order. */
            interim?: components["schemas"]["Interim"][];
            /** @description The response, once its head has arrived. */
            response?: components["schemas"]["Response"];
            /** @description Request and response as received, if they were edited; `request` and `response` are what was sent on. */
            original?: components["schemas"]["Original"];
            /** @description Points in time in microseconds after `started`, and durations in microseconds. */
            timings: components["schemas"]["Timings"];
            /**
             * @description The attempts at which a gateway sent the request, if it was the one that sent it: to several providers, or several
             *     times.
             */
            attempts?: components["schemas"]["Attempt"][];
            /** @description The error, if the flow failed. */
            error?: components["schemas"]["FlowError"];
            /** @description Bytes transferred through a tunnel. */
            tunnel?: components["schemas"]["TunnelBytes"];
            /** @description Why a tunnel was passed through uninspected: such as `excluded` or `pinning_bypass`. */
            passthrough?: string;
            /**
             * @description Number of recorded messages.
             * @default 0
             */
            messages: number;
            /** @description Tags set by stages and by the operator. */
            tags?: string[];
            /** @description The operator's comment. */
            comment?: string;
            /** @description The flow that this one replays. */
            parent?: components["schemas"]["FlowId"];
            /**
             * @description Whether the flow was imported from an archive.
             * @default false
             */
            imported: boolean;
            /** @description Archive fields without a counterpart here (such as HAR's `_initiator`), kept so that an export can restore them. */
            archive?: {
                [key: string]: unknown;
            };
            url: string;
            /** @description Duration in microseconds, up to now while it is open. */
            duration: number;
            /** @description Request fields whose values were masked: a replay omits them unless they are set again. */
            masked: string[];
        };
        /** @description The error that ended a flow. */
        FlowError: {
            /** @description The label of the error's kind, such as `upstream_timeout`. */
            kind: string;
            /** @description Who caused it: `client`, `upstream`, `config` or `internal`. */
            blame: string;
            message: string;
        };
        /**
         * @description Totals of flows. A flow counts in one of the three classes of errors at most; flows that are still open count as
         *     requests only.
         */
        FlowFigures: {
            /** @description Flows of every kind: HTTP exchanges, WebSockets and tunnels. */
            requests: number;
            /** @description Responses with a status of 400 to 499. */
            client_errors: number;
            /** @description Responses with a status of 500 or more. */
            server_errors: number;
            /** @description Flows that failed, whatever their status. */
            failed: number;
            /** @description Bytes of bodies and tunnels to origins. */
            sent: number;
            /** @description Bytes of bodies and tunnels from origins. */
            received: number;
            /** @description Median duration of HTTP exchanges in microseconds, within 2 %; null if there were none. */
            p50: number | null;
            /** @description The duration that 95 % of them did not exceed, within 2 %. */
            p95: number | null;
            /** @description The duration that 99 % of them did not exceed, within 2 %. */
            p99: number | null;
        };
        /**
         * @description The id of a flow: 48 bits of Unix milliseconds, 16 random bits per process, a 64-bit counter.
         *
         *     The text form is 26 characters of Crockford's base 32, which sort like the ids.
         */
        FlowId: string;
        FlowIdsInput: {
            ids: string[];
        };
        FlowKind: "http" | "websocket" | "tunnel";
        FlowPage: {
            flows: components["schemas"]["FlowSummary"][];
            /** @description The cursor for the next page in the requested direction. */
            next: string | null;
            /** @description Damaged flows that were skipped since the start. */
            damaged?: number;
            /** @description What in the query is probably not meant, such as an operator in lower case, which is searched as a word. */
            warnings?: string[];
        };
        /** @description The recording state of a flow. */
        FlowState: "open" | "complete" | "failed" | "cut";
        /** @description The summary of a flow for live views; contains no headers or bodies. */
        FlowSummary: {
            id: components["schemas"]["FlowId"];
            state: components["schemas"]["FlowState"];
            kind: components["schemas"]["FlowKind"];
            started: components["schemas"]["Timestamp"];
            /** @description Duration in microseconds, up to now while the flow is open. */
            duration: number;
            scheme: components["schemas"]["Scheme"];
            authority: components["schemas"]["Authority"];
            method?: string;
            path?: string;
            status?: number;
            version: string;
            user?: string;
            client: string | null;
            /** @description Bytes sent to the origin: body or tunnel. */
            request_size: number;
            /** @description Bytes received from the origin: body or tunnel. */
            response_size: number;
            request_type?: string;
            response_type?: string;
            /** @description Number of recorded messages. */
            messages: number;
            error?: string;
            /** @description Why a tunnel was passed through uninspected. */
            passthrough?: string;
            tags?: string[];
            /** @description The flow that this one replays. */
            parent?: components["schemas"]["FlowId"];
        };
        FlushedFlows: {
            flushed: boolean;
        };
        /** @description A conversation with its token usage. */
        FoundConversation: {
            id: string;
            /** @description Groups related conversations: the client's own session id, or an id derived from the connection. */
            session: string;
            /** @description The conversation that started this one, if it belongs to a sub-agent. */
            parent?: string;
            /** @description When its first exchange started. */
            started: components["schemas"]["Timestamp"];
            /** @description When its last exchange ended, by which lists are sorted. */
            updated: components["schemas"]["Timestamp"];
            /** @description The client program, such as `claude-code`. */
            agent: string;
            /** @description The model of the most recent response. */
            model: string;
            /** @description The provider whose API is used. */
            provider: string;
            host: string;
            user?: string;
            title: string;
            /** @description Number of prompts on the path to its last response; 0 if it contains only utility calls. */
            turns: number;
            used: components["schemas"]["TokenUsage"];
            /** @description Exchanges whose prompt left with findings that redaction would have replaced. */
            unredacted: number;
            /** @description The operator's tags and comments; the one without a message is of the conversation itself. */
            notes?: components["schemas"]["ConversationNote"][];
            /** @description How many of its messages contain the text. */
            hits: number;
            /** @description The first of them. */
            excerpts: components["schemas"]["TextExcerpt"][];
        };
        FoundKind: {
            /** @description Start of the bucket, in microseconds since the Unix epoch. */
            from: number;
            kind: string;
            host: string;
            /** @description `gateway`, `intercepted`, or an exception's name. */
            route: string;
            flows: number;
        };
        /** @description A level above a key, by its name in the keys file, in limits and in messages. */
        GroupLevel: "team" | "organisation";
        HeldCounts: {
            /** @description Pending requests of approvals. */
            approvals: number;
            rules: number;
        };
        /** @description A flow that waits for a decision. */
        HeldFlow: {
            /** @description The number by which it is decided. */
            id: number;
            /** @description The flow. */
            flow: string;
            /** @description The rule that holds it. */
            rule: string;
            /** @description The phase in which it is held. */
            phase: string;
            what: components["schemas"]["HeldPart"];
            /** @description The rule author's note. */
            note: string | null;
            /** @description The client's address. */
            client: string;
            /** @description The user of the proxy. */
            user: string | null;
            /** @description The client's process. */
            process: string | null;
            /** @description When the hold began. */
            since: components["schemas"]["Timestamp"];
            /** @description When the hold times out. */
            until: components["schemas"]["Timestamp"];
            /** @description Whether it continues without a decision. */
            continue_on_timeout: boolean;
            /** @description Method of the request. */
            method: string | null;
            /** @description URL of the request. */
            url: string;
            /** @description Status of the response. */
            status: number | null;
            /** @description Fields of the held head. */
            headers: [
                string,
                string
            ][];
            /** @description The held body or message, if the phase has it and it is text. */
            body: string | null;
        };
        HeldFlows: {
            held: components["schemas"]["HeldFlow"][];
        };
        /**
         * @description The part of a flow that is held.
         * @enum {string}
         */
        HeldPart: "request" | "response" | "message";
        /** @description The operator's decision. */
        HoldDecision: {
            /** @constant */
            action: "continue";
        } | {
            /** @constant */
            action: "change";
            /** @description New method. */
            method?: string | null;
            /** @description New URL. */
            url?: string | null;
            /** @description New status. */
            status?: number | null;
            /**
             * @description Fields to set; an empty value removes the field.
             * @default []
             */
            headers?: [
                string,
                string
            ][];
            /** @description New body. */
            body?: string | null;
        } | {
            /** @constant */
            action: "answer";
            /** @description The status. */
            status: number;
            /**
             * @description Fields.
             * @default []
             */
            headers?: [
                string,
                string
            ][];
            /**
             * @description The body.
             * @default
             */
            body?: string;
        } | {
            /** @constant */
            action: "deny";
            /** @description The reason. */
            reason?: string | null;
        } | {
            /** @constant */
            action: "drop";
        };
        /** @description a duration such as 500ms, 30s, 5m, 2h or 7d */
        HumanDuration: string | number;
        /** @description What somebody was recognised by. */
        IdentityKind: "admin-token" | "person" | "personal-token" | "service-token";
        ImportResult: {
            imported: number;
            /** @description Flows whose id was recorded already; they are left unchanged. */
            present: number;
            /** @description Entries that could not be read. */
            skipped: number;
            /** @description Why, of the first of them. */
            reasons: string[];
        };
        InstanceList: {
            /** @description The longest running first; empty unless the recording is in a shared store. */
            instances: components["schemas"]["InstanceRow"][];
        };
        /** @description A process that records to the store, as it last reported. */
        InstanceRow: {
            /** @description Its host, and a number for this start of it. */
            name: string;
            version: string;
            /** @description Where its API or its proxy listens. */
            address: string;
            /** @description Distinguishes configurations: equal ones have equal digests. */
            config_digest: string;
            started: components["schemas"]["Timestamp"];
            /** @description Flows in progress. */
            open_flows: number;
            /** @description Open connections of clients. */
            connections: number;
            /** @description Finished flows on its disk that were not moved to the shared store yet. */
            waiting_flows: number;
            /** @description By how much its clock is ahead of the shared store's, in milliseconds. */
            clock_ahead_millis: number;
            /** @description Its last sign of life, by the shared store's clock. */
            seen: components["schemas"]["Timestamp"];
            /** @description Whether it has been silent for several reports: it has ended without a word, or cannot reach the store. */
            silent: boolean;
            /** @description Whether it indexes conversations for all. */
            indexes_conversations: boolean;
            /** @description Whether it archives the record for all. */
            archives: boolean;
            /** @description Whether it is the process that answers. */
            own: boolean;
        };
        /** @description An interim response (RFC 9110 15.2) that was relayed to the client. */
        Interim: {
            status: number;
            /** @description The header fields in order, with secrets masked. */
            headers: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
        };
        /** @description An ephemeral credential of the proxy: it is not stored, and is lost with the process. */
        IssuedCredential: {
            user: string;
            password: string;
        };
        /** @description What to change of a key. Absent members stay as they are. */
        KeyChangeInput: {
            /**
             * @description Whether it is rejected until it is enabled again.
             * @default null
             */
            disabled?: boolean | null;
            /**
             * @description Expiry, as RFC 3339; an empty text removes it.
             * @default null
             */
            expires?: string | null;
            /**
             * @description The id of its team; an empty text removes it from its team.
             * @default null
             */
            team?: string | null;
            /**
             * @description Its own tags, in place of those it has.
             * @default null
             */
            tags?: {
                [key: string]: string;
            } | null;
        };
        /** @description What to set of a team or an organisation. Absent members stay as they are. */
        KeyGroupInput: {
            /**
             * @description The organisation of a team; an empty text removes it from its organisation.
             * @default null
             */
            organisation?: string | null;
            /** @default null */
            note?: string | null;
            /**
             * @description Expiry, as RFC 3339; an empty text removes it.
             * @default null
             */
            expires?: string | null;
            /**
             * @description Whether all its keys are rejected until it is enabled again.
             * @default null
             */
            disabled?: boolean | null;
            /**
             * @description Model names that its keys may use, with `*`; an empty list allows all.
             * @default null
             */
            models?: string[] | null;
            /**
             * @description MCP servers and tools that its keys may use, as `SERVER` or `SERVER/TOOL`; an empty list allows all.
             * @default null
             */
            mcp?: string[] | null;
            /**
             * @description Its own tags, in place of those it has.
             * @default null
             */
            tags?: {
                [key: string]: string;
            } | null;
            /**
             * @description Its limits, in place of those it has.
             * @default null
             */
            limits?: components["schemas"]["QuotaInput"] | null;
        };
        /** @description A team or an organisation. */
        KeyGroupView: {
            level: components["schemas"]["GroupLevel"];
            id: string;
            /** @description The organisation of a team. */
            organisation?: string;
            /** @description The operator's note. */
            note?: string;
            /** @description The first moment at which its keys are no longer valid. */
            expires?: string;
            /** @description Whether all its keys are rejected until it is enabled again. */
            disabled: boolean;
            /** @description Model names that its keys may use, with `*`; empty: all. */
            models?: string[];
            /** @description MCP servers and tools that its keys may use, as in a key's scope; empty: all. */
            mcp?: string[];
            /** @description Its own tags, and those of its organisation. */
            tags?: {
                [key: string]: string;
            };
            /** @description Limits of all its keys together. */
            limits?: components["schemas"]["Quota"];
            state: components["schemas"]["KeyState"];
            /** @description Virtual keys that belong to it, also by their team. */
            keys: number;
        };
        KeyGroups: {
            organisations: components["schemas"]["KeyGroupView"][];
            teams: components["schemas"]["KeyGroupView"][];
        };
        /** @enum {string} */
        KeyState: "active" | "disabled" | "expired" | "revoked";
        LimitsView: {
            /** @description The configured rules. */
            rules: components["schemas"]["QuotaRule"][];
            counters: components["schemas"]["CounterSnapshot"][];
            /** @description Usage since the start, by key, user, provider and model. */
            usage: components["schemas"]["UsageRow"][];
            refused: number;
            /** @description Health of the shared counter store; null if there is none. */
            shared: components["schemas"]["SharedStoreStatus"] | null;
            /** @description Why counters are missing. */
            problem: string | null;
            prices_as_of: components["schemas"]["PriceListDates"];
        };
        /** @description The properties of a requested link. */
        LinkRequest: {
            /**
             * @description The gateway's URL as players reach it; the request's own if absent.
             * @default null
             */
            mediaflow_proxy_url?: string | null;
            /**
             * @description `/proxy/stream`, `/proxy/hls/manifest.m3u8`, …
             * @default null
             */
            endpoint?: string | null;
            /**
             * @description What is fetched.
             * @default null
             */
            destination_url?: string | null;
            /**
             * @description Further parameters.
             * @default {}
             */
            query_params?: {
                [key: string]: unknown;
            };
            /**
             * @description Header fields sent upstream.
             * @default {}
             */
            request_headers?: {
                [key: string]: unknown;
            };
            /**
             * @description Header fields set on the response.
             * @default {}
             */
            response_headers?: {
                [key: string]: unknown;
            };
            /**
             * @description Header fields set on segments too.
             * @default {}
             */
            propagate_response_headers?: {
                [key: string]: unknown;
            };
            /**
             * @description Header fields removed from responses.
             * @default []
             */
            remove_response_headers?: string[];
            /**
             * @description The byte filter.
             * @default null
             */
            stream_transformer?: string | null;
            /**
             * @description Lifetime in seconds.
             * @default null
             */
            expiration?: number | null;
            /**
             * @description The client address or network that may use it.
             * @default null
             */
            ip?: string | null;
            /**
             * @description Only endpoints whose path has this prefix.
             * @default null
             */
            path?: string | null;
            /**
             * @description The methods that the link allows; GET and HEAD if empty. Others are for `/proxy/forward`.
             * @default []
             */
            methods?: string[];
            /**
             * @description Only these hosts upstream, as host patterns.
             * @default []
             */
            hosts?: string[];
            /**
             * @description The user of the link.
             * @default null
             */
            user?: string | null;
            /**
             * @description Seals the link. The value is not checked here: the request is already authorised.
             * @default null
             */
            api_password?: string | null;
            /**
             * @description Whether to seal the link, regardless of `api_password`.
             * @default null
             */
            sealed?: boolean | null;
            /**
             * @description The file name for downloads.
             * @default null
             */
            filename?: string | null;
            /**
             * @description Encodes the destination in base64 if the link is not sealed.
             * @default false
             */
            base64_encode_destination?: boolean;
        };
        /** @description A conversation with its token usage. */
        ListedConversation: {
            id: string;
            /** @description Groups related conversations: the client's own session id, or an id derived from the connection. */
            session: string;
            /** @description The conversation that started this one, if it belongs to a sub-agent. */
            parent?: string;
            /** @description When its first exchange started. */
            started: components["schemas"]["Timestamp"];
            /** @description When its last exchange ended, by which lists are sorted. */
            updated: components["schemas"]["Timestamp"];
            /** @description The client program, such as `claude-code`. */
            agent: string;
            /** @description The model of the most recent response. */
            model: string;
            /** @description The provider whose API is used. */
            provider: string;
            host: string;
            user?: string;
            title: string;
            /** @description Number of prompts on the path to its last response; 0 if it contains only utility calls. */
            turns: number;
            used: components["schemas"]["TokenUsage"];
            /** @description Exchanges whose prompt left with findings that redaction would have replaced. */
            unredacted: number;
            /** @description The operator's tags and comments; the one without a message is of the conversation itself. */
            notes?: components["schemas"]["ConversationNote"][];
            /** @description Whether its last exchange was at most 90 seconds ago. */
            live: boolean;
        };
        ListenAddresses: {
            proxy: string[];
            gateway: string[];
            admin: string;
        };
        /** @description A route and the state of its deployments. */
        LlmRouteView: {
            /** @description The model's name that clients ask for, or the provider that has fallbacks. */
            name: string;
            /** @description Whether it is one of `[llm.route]`; otherwise a provider with its fallbacks or attempts. */
            configured: boolean;
            strategy: components["schemas"]["RouteStrategy"];
            sticky: components["schemas"]["Stickiness"];
            /** @description Retries that the budget allows now; null if it does not limit them. */
            retries_left: number | null;
            deployments: components["schemas"]["DeploymentView"][];
        };
        LlmRoutes: {
            /** @description Those of `[llm.route]`, and providers with fallbacks or several attempts. */
            routes: components["schemas"]["LlmRouteView"][];
        };
        LoginLink: {
            path: string;
            /** @description Seconds until it is no longer valid. */
            expires_in: number;
        };
        /** @description Prices that apply to prompts of more `tokens`; what is not in them costs the same as in shorter ones. */
        LongPrompt: {
            tokens: number;
        } & {
            [key: string]: number | null;
        };
        /** @description An account that a user has connected at a server. Its tokens are shown nowhere. */
        McpAccount: {
            /** @description `key:ID`, `user:SUBJECT`, or `local` for users of this machine without either. */
            user: string;
            server: string;
            connected: components["schemas"]["Timestamp"];
        };
        /** @description An account to forget. */
        McpAccountInput: {
            server: string;
            user: string;
        };
        McpAccounts: {
            accounts: components["schemas"]["McpAccount"][];
        };
        Me: {
            name: string;
            kind: components["schemas"]["IdentityKind"];
            role: components["schemas"]["Role"];
            rights: components["schemas"]["Right"][];
            /** @description The issuer at which people log in; null if only tokens let in. */
            issuer: string | null;
            /** @description Whether the caller may create API tokens. */
            creates_tokens: boolean;
        };
        MediaLink: {
            url: string;
            expires: components["schemas"]["Timestamp"] | null;
        };
        /** @description One message of a WebSocket, event stream or gRPC stream. */
        Message: {
            /** @description Its position among the flow's messages, from 0. */
            index: number;
            direction: components["schemas"]["Direction"];
            kind: components["schemas"]["MessageKind"];
            /** @description When its last byte arrived. */
            at: components["schemas"]["Timestamp"];
            /** @description Size of the payload as transferred. */
            size: number;
            /** @description The payload; shorter than `size` if capped. */
            payload: components["schemas"]["Bytes"];
            /** @description A gRPC message decoded to text by its schema, or from the wire format alone. */
            decoded?: string;
        };
        MessageKind: "text" | "binary" | "ping" | "pong" | "close" | "event" | "grpc";
        MessagePage: {
            messages: components["schemas"]["Message"][];
            total: number;
            /** @description The number of the first message of the next page. */
            next: number | null;
        };
        /** @description The author of a message. */
        MessageRole: "assistant" | "user";
        /**
         * Format: micros
         * @description A duration in microseconds.
         */
        Microseconds: Micros;
        /** @description Why a body is not recorded in full. */
        MissingReason: "capped" | "dropped" | "lost" | "head" | "decrypted" | "secret" | "elsewhere";
        ModeRequest: {
            /** @description Null or absent for the configured one. */
            mode?: components["schemas"]["ApprovalMode"] | null;
            /**
             * @description How long it is active; if absent, until it is set back, or without a shared store until Interflow stops.
             * @default null
             */
            for?: components["schemas"]["HumanDuration"] | null;
        };
        /** @description The active mode. */
        ModeView: {
            mode: components["schemas"]["ApprovalMode"];
            /** @description When a temporary mode ends; null if it is the configured one, or does not end by itself. */
            mode_until: components["schemas"]["Timestamp"] | null;
            mode_is_configured: boolean;
        };
        /** @description What a model can do. Words are plain text, so that a newer catalog may have new ones. */
        ModelCapabilities: {
            /**
             * @description APIs that serve the model at its maker, the preferred one first: `responses`, `chat`, `messages`, `realtime`,
             *     `generate_content`, `interactions`. Empty if not known.
             * @default []
             */
            apis: string[];
            /**
             * @description APIs that take function tools while the model thinks; all of `apis` if empty.
             * @default []
             */
            tools_on: string[];
            /**
             * @description Parameters that are an error or have no effect.
             * @default []
             */
            refuses: string[];
            /**
             * @description Those that are an error only while the model thinks.
             * @default []
             */
            refuses_while_thinking: string[];
            /** @description The efforts that can be asked for; `None` if the model takes no effort. */
            effort: components["schemas"]["ModelEfforts"] | null;
            thinking: components["schemas"]["ThinkingMode"];
            /** @description What thoughts are bound to; they are then refused, or dropped, behind another history. */
            bound_thinking: components["schemas"]["ThinkingBinding"] | null;
            /**
             * @description Whether Chat Completions refuse a turn of the assistant without its thoughts while the model thinks.
             * @default false
             */
            thinking_in_history: boolean;
            /**
             * @description Whether the API makes the answer follow a schema.
             * @default false
             */
            structured_output: boolean;
            /**
             * @description What it reads: `text`, `image`, `audio`, `video`, `pdf`.
             * @default []
             */
            input: string[];
            /**
             * @description What it writes.
             * @default []
             */
            output: string[];
        };
        /** @description The efforts of a model. */
        ModelEfforts: {
            /**
             * @description From the lowest to the highest, without what turns thinking off.
             * @default []
             */
            levels: string[];
            /**
             * @description The one that applies if a request has none; `none` where thinking is off then. `None` if not known.
             * @default null
             */
            default: string | null;
            /**
             * @description What turns thinking off, or as far off as the model lets: the effort `none` (OpenAI, Mistral), or the type of
             *     `thinking` (Anthropic): `disabled`, `between_tools`. `None` if nothing does.
             * @default null
             */
            off: string | null;
            /**
             * @description The highest effort with which `off` is accepted; any if `None`.
             * @default null
             */
            off_up_to: string | null;
        };
        ModelFigures: {
            name: string | null;
            used: components["schemas"]["TokenUsage"];
        };
        /** @description The most tokens of a request and of an answer. */
        ModelLimits: {
            /** @default null */
            input: number | null;
            /** @default null */
            output: number | null;
            /**
             * @description The fewest tokens that a cache keeps.
             * @default null
             */
            cache_min: number | null;
        };
        /** @description Models that were asked for. */
        ModelListing: {
            /**
             * @description The model of exactly this name at the provider, as a call would be charged: also one whose name the catalog has
             *     without region, vendor and date.
             */
            named: components["schemas"]["ModelView"] | null;
            /** @description Those whose names contain the text, up to the limit. */
            models: components["schemas"]["ModelView"][];
            /** @description How many there are. */
            total: number;
            as_of: components["schemas"]["PriceListDates"];
        };
        /** @description The prices of a model from a day on. */
        ModelPrice: {
            /** @description The first day on which it holds, as `2026-12-01`; always if unset. */
            from?: string;
            /** @description The hours in which it holds, before the price without hours; always if empty. */
            hours?: components["schemas"]["PriceHours"][];
            /** @description What all tokens of a request cost whose prompt is longer. */
            over?: components["schemas"]["LongPrompt"][];
            /** @description By level of service: `batch`, `flex`, `priority`, `ultrafast`, `fast`, `balanced`. */
            tiers?: {
                [key: string]: components["schemas"]["TierPrice"];
            };
            /** @description Factors of all tokens by region: `us`, `eu`. */
            regions?: {
                [key: string]: number;
            };
        } & {
            [key: string]: number | null;
        };
        ModelSeries: {
            name: string | null;
            tokens: number[];
            cost: number[];
        };
        /** @description A model with the price that applies now. */
        ModelView: {
            /** @description Provider and model, as the catalog has them, or the entry of the operator's own list. */
            name: string;
            /** @description `null` if it has none; so are prices in it that the provider has not published. */
            price: components["schemas"]["ModelPrice"] | null;
            /** @description The entry of the operator's own list that the price is of. */
            own?: string;
            /** @description What translation leaves out, moves or changes in requests for it. */
            translation?: string[];
            /**
             * @description What it is for: `chat`, `responses`, `embedding`, `image_generation` and others.
             * @default null
             */
            mode: string | null;
            /**
             * @description The last one that holds applies.
             * @default []
             */
            prices: components["schemas"]["ModelPrice"][];
            limits: components["schemas"]["ModelLimits"];
            capabilities: components["schemas"]["ModelCapabilities"] | null;
            /**
             * @description The last day on which its provider serves it.
             * @default null
             */
            ends: string | null;
            /**
             * @description What its provider names in its place.
             * @default null
             */
            successor: string | null;
        };
        NamedFigures: {
            /** @description Absent for the sum of all that were too many to be told apart. */
            name: string | null;
            requests: number;
            /** @description Those of them that failed or have a status of 400 or more. */
            errors: number;
            bytes: number;
        };
        NamedSeries: {
            name: string | null;
            values: number[];
        };
        /** @description The properties of a new key. */
        NewKeyInput: {
            /**
             * @description Its id in limits, logs and audit records.
             * @default
             */
            id?: string;
            /**
             * @description Who it is issued to; counts as the user of its requests.
             * @default null
             */
            owner?: string | null;
            /** @default null */
            note?: string | null;
            /**
             * @description Expiry, as RFC 3339: `2027-01-31T12:00:00Z`.
             * @default null
             */
            expires?: string | null;
            /**
             * @description Provider names that it may be used with; empty for all.
             * @default []
             */
            providers?: string[];
            /**
             * @description Model names that it may be used with; empty for all.
             * @default []
             */
            models?: string[];
            /**
             * @description Paths that it may be used with; empty for all.
             * @default []
             */
            paths?: string[];
            /**
             * @description MCP servers and tools that it may be used with, as `SERVER` or `SERVER/TOOL`; empty for all.
             * @default []
             */
            mcp?: string[];
            /** @default {} */
            limits?: components["schemas"]["QuotaInput"];
            /**
             * @description The id of its team.
             * @default null
             */
            team?: string | null;
            /**
             * @description Its tags, beside those of its team and organisation.
             * @default {}
             */
            tags?: {
                [key: string]: string;
            };
        };
        /** @description A flow's request and response as received, before they were edited. */
        Original: {
            /** @description The request as received from the client, if it was edited. */
            request?: components["schemas"]["OriginalRequest"];
            /** @description The response as received from the origin, if it was edited. */
            response?: components["schemas"]["OriginalResponse"];
        };
        OriginalRequest: {
            /** @description The original URL, with secrets in the query masked. */
            url: string;
            method: string;
            /** @description Path and query as the client wrote them; `*` for a server-wide OPTIONS. */
            path: string;
            /** @description The downstream version: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` (an import may contain others). */
            version: string;
            /** @description The protocol requested by an upgrade or extended CONNECT, such as `websocket`. */
            protocol?: string;
            /** @description The header fields in order, with secrets masked. */
            headers: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /** @description The trailer section (RFC 9110 6.5), with secrets masked. */
            trailers?: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /**
             * @default {
             *       "size": 0,
             *       "kept": 0
             *     }
             */
            body: components["schemas"]["Body"];
            /** @description Whether the body was edited as well and is recorded twice; otherwise the body sent on is the original. */
            body_edited: boolean;
        };
        OriginalResponse: {
            status: number;
            /** @description The reason phrase as received; empty over HTTP/2. */
            reason?: components["schemas"]["Bytes"];
            /** @description The version on the side it was received from. */
            version: string;
            /** @description The header fields in order, with secrets masked. */
            headers: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /** @description The trailer section (RFC 9110 6.5), with secrets masked. */
            trailers?: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /**
             * @default {
             *       "size": 0,
             *       "kept": 0
             *     }
             */
            body: components["schemas"]["Body"];
            /** @description Whether the body was edited as well and is recorded twice; otherwise the body delivered is the original. */
            body_edited: boolean;
        };
        /** @description What is done with findings in a response. */
        OutboundMode: "off" | "flag" | "redact" | "block";
        /** @description Figures of the flows that began in a span of time. */
        Overview: {
            /** @description The first microsecond of the first bucket, since the Unix epoch. */
            from: number;
            /** @description The microsecond after the last one. */
            to: number;
            /** @description Length of a bucket, in microseconds; the last one may be shorter. */
            step: number;
            totals: components["schemas"]["FlowFigures"];
            llm: components["schemas"]["TokenUsage"];
            /**
             * @description The same for the span of the same length before `from`; absent if it was not asked for, or if the figures are of a
             *     sample.
             */
            previous?: components["schemas"]["PreviousFigures"];
            series: components["schemas"]["OverviewSeries"];
            /** @description The hosts with the most flows, the busiest first. */
            hosts: components["schemas"]["NamedFigures"][];
            /** @description Flows of the busiest hosts by bucket; an entry without a name sums up all others. */
            host_series: components["schemas"]["NamedSeries"][];
            users: components["schemas"]["NamedFigures"][];
            processes: components["schemas"]["NamedFigures"][];
            /** @description Kinds of errors, the most frequent first. */
            errors: components["schemas"]["NamedFigures"][];
            /** @description Status codes of responses, the most frequent first. */
            statuses: components["schemas"]["StatusFigures"][];
            /** @description Models by tokens, the most used first. */
            models: components["schemas"]["ModelFigures"][];
            /** @description Tokens and cost of the most used models by bucket; an entry without a name sums up all others. */
            model_series: components["schemas"]["ModelSeries"][];
            /** @description HTTP exchanges that took the longest. */
            slowest: components["schemas"]["FlowSummary"][];
            /** @description Flows with the most bytes. */
            largest: components["schemas"]["FlowSummary"][];
            /**
             * @description Present while older flows have not been summarised yet: the figures are of the newest flows only, and the next
             *     request continues where this one stopped.
             */
            indexing?: components["schemas"]["OverviewIndexing"];
            /** @description Present if the query selects more flows than are examined: the figures are of the newest of them. */
            sample?: components["schemas"]["OverviewSample"];
        };
        /** @description How many of the recorded flows have been summarised. */
        OverviewIndexing: {
            done: number;
            total: number;
        };
        /** @description The part of a query's flows that was examined. */
        OverviewSample: {
            flows: number;
            /** @description When the oldest of them began, in microseconds since the Unix epoch; nothing older is in the figures. */
            since: number;
        };
        /** @description One value per bucket. */
        OverviewSeries: {
            requests: number[];
            client_errors: number[];
            server_errors: number[];
            failed: number[];
            sent: number[];
            received: number[];
            /** @description Null where no HTTP exchange ended. */
            p50: (number | null)[];
            p95: (number | null)[];
            p99: (number | null)[];
            /** @description Calls of language models. */
            calls: number[];
            input: number[];
            output: number[];
            /** @description US dollars. */
            cost: number[];
        };
        PendingClient: {
            address: string;
            user: string | null;
            process: string | null;
            container: string | null;
            sessions: string[];
        };
        PendingDecision: components["schemas"]["Resolution"] | components["schemas"]["HoldDecision"];
        /** @description A request, tunnel, response or message that waits for a decision. */
        PendingItem: {
            /** @description The id by which it is decided. */
            id: string;
            /** @description The replica that holds it, if several share the recording. */
            replica: string | null;
            kind: components["schemas"]["PendingKind"];
            what: components["schemas"]["PendingPart"];
            /** @description Null for a tunnel, which has no request yet. */
            method: string | null;
            /** @description For a tunnel, host and port. */
            url: string;
            host: string;
            port: number | null;
            /** @description The response's status, if that is held. */
            status: number | null;
            headers: [
                string,
                string
            ][];
            /** @description The body, if it is short text that has arrived, and the caller may read bodies. */
            body: string | null;
            body_size: number | null;
            client: components["schemas"]["PendingClient"];
            /** @description Number of flows that wait for the same decision. */
            waiting: number;
            /** @description The first of those flows. */
            flows: string[];
            since: components["schemas"]["Timestamp"];
            /** @description When it times out; then `on_timeout` applies. */
            until: components["schemas"]["Timestamp"];
            on_timeout: components["schemas"]["TimeoutAction"];
            rule: string | null;
            /** @description The phase in which a rule holds it. */
            phase: string | null;
            /** @description The rule author's note, or what a guardrail found. */
            note: string | null;
            /** @description Whether the query selects this; null if there is none, or too little is known. */
            matches: boolean | null;
        };
        /** @description Everything that waits for a decision. */
        PendingItems: {
            /** @description Increases with each change. */
            version: number;
            pending: components["schemas"]["PendingItem"][];
        };
        /** @enum {string} */
        PendingKind: "approval" | "rule";
        /** @enum {string} */
        PendingPart: "request" | "tunnel" | "response" | "message";
        /** @description A pending request. */
        PendingRequest: {
            /** @description The id by which it is resolved. */
            id: number;
            user: string | null;
            process: string | null;
            container: string | null;
            client: string;
            /** @description The sessions that the flow belongs to. */
            sessions: string[];
            host: string;
            port: number;
            /** @description The method; `None` for a tunnel. */
            method: string | null;
            /** @description The path without its query; `None` for a tunnel. */
            path: string | null;
            /** @description Why a person is asked, if it is not a rule or the mode: what a guardrail found. Such a question is decided once. */
            reason?: string;
            waiting: number;
            /** @description The first of the waiting flows. */
            flows: string[];
            since: components["schemas"]["Timestamp"];
            /** @description When its last flow times out. */
            until: components["schemas"]["Timestamp"];
        };
        PhaseExplanation: {
            phase: string;
            outcome: components["schemas"]["PhaseOutcome"];
            why: string;
            /** @description Names of the actions of this phase. */
            actions: string[];
        };
        /** @description Whether a rule's condition holds in a phase. */
        PhaseOutcome: ("matched" | "no") | "open";
        /** @description The active policies, and the requests that each applies to. */
        Policies: {
            policies: components["schemas"]["PolicyFileView"][];
            routes: components["schemas"]["RedactionRoute"][];
        };
        /** @description A policy's file, as the web UI lists it. */
        PolicyFileView: {
            file: string;
            /** @description Whether the file exists; otherwise the built-in policy is active. */
            exists: boolean;
            name: string;
            /** @description The routes that use it; empty if only keys select it. */
            routes: string[];
        };
        /** @description An error in a policy's text. */
        PolicyProblem: {
            /** @description From 1. */
            line: number;
            /** @description In characters, from 1. */
            column: number;
            /** @description What is wrong, with the closest valid name. */
            message: string;
        };
        PolicySchema: {
            /** @description The JSON Schema of Interflow's policies. */
            schema: {
                [key: string]: unknown;
            };
            kinds: string[];
        };
        PolicySource: {
            file: string;
            text: string;
        };
        PolicyTextInput: {
            text: string;
            /** @description The text that the change is based on: if the file has changed since, the request fails. */
            base?: string | null;
        };
        /** @description The figures of the span before. */
        PreviousFigures: {
            totals: components["schemas"]["FlowFigures"];
            llm: components["schemas"]["TokenUsage"];
        };
        /** @description Hours of some days of the week, in UTC. */
        PriceHours: {
            /** @description From 1, Monday, to 7. */
            weekdays: number[];
            /** @description Minutes after midnight. */
            begin: number;
            end: number;
        };
        /** @description Dates of the price lists: a day, or the text in the operator's list. */
        PriceListDates: {
            built_in: string;
            /** @description That of the operator's list; empty if it has none. */
            own?: string;
        };
        /** @description A process of the recording machine. */
        Process: {
            pid: number;
            /** @description The file name of its executable. */
            name: string;
        };
        /** @description The prompt cache of a conversation. Side calls do not count. */
        PromptCacheReport: {
            /** @description Calls whose tokens the provider counted. */
            calls: number;
            input_tokens: number;
            /** @description The part of them that came from the cache. */
            cached_tokens: number;
            /** @description The part of them that was written to the cache; not every provider says so. */
            written_tokens: number;
            /** @description Tokens that were paid in full although the cache had held them, all breaks together. */
            lost_tokens: number;
            /**
             * Format: double
             * @description What they cost more than from the cache, in US dollars, where the price is known.
             */
            lost_cost: number;
            /** @description The calls at which the cache broke, in order; at most 200. */
            breaks: components["schemas"]["CacheBreak"][];
            /** @description What to change, the most expensive first. */
            advice: components["schemas"]["CacheAdvice"][];
        };
        ProposalInput: {
            /** @description The rules, as the text of a rule file in YAML or TOML. */
            text: string;
            /**
             * @description Why they are proposed.
             * @default
             */
            reason?: string;
            /**
             * @description The flows on which they are tried; the newest ones when it is empty.
             * @default
             */
            query?: string;
        };
        ProposalList: {
            proposals: components["schemas"]["RuleProposal"][];
        };
        ProposalMatch: {
            rule: string;
            flow: string;
            method: string;
            url: string;
        };
        ProtoFiles: {
            /** @description Names and texts of `.proto` files. They import each other, and Google's, by name. */
            files: [
                string,
                string
            ][];
        };
        /**
         * @description Sums over all workers. The workers go on counting meanwhile, so related figures may differ by the requests in
         *     progress.
         */
        ProxyStats: {
            /** @description Client connections accepted. */
            connections: number;
            /** @description Client connections refused by a limit. */
            connections_refused: number;
            /** @description Client connections that are open. */
            connections_open: number;
            /** @description Requests started. */
            requests: number;
            /** @description Flows in progress. */
            active: number;
            /** @description Responses by the first digit of their status; index 0 counts flows that ended without one. */
            responses: number[];
            /** @description Tunnels that were passed through without inspection or were not HTTP. */
            tunnels: number;
            /** @description Client TLS handshakes completed with an issued leaf. */
            intercepted: number;
            /** @description Leaves refused by clients. */
            leaf_refused: number;
            /** @description Bytes of request bodies and tunnels towards origins. */
            bytes_sent: number;
            /** @description Bytes of response bodies and tunnels from origins. */
            bytes_received: number;
            /** @description WebSocket, server-sent event and gRPC messages. */
            messages: number;
            /** @description Errors by kind, without zero counts. */
            errors: [
                string,
                number
            ][];
            /** @description HTTP requests by duration: counts for `latency_bounds`, and one for the rest. */
            latency: number[];
            /** @description Sum of all durations, in microseconds. */
            latency_sum: number;
        };
        PruneInput: {
            /** @default  */
            query?: string;
            /**
             * @description Only flows that began longer ago than this.
             * @default null
             */
            older?: components["schemas"]["HumanDuration"] | null;
            /**
             * @description Confirms the deletion of every flow.
             * @default false
             */
            all?: boolean;
        };
        PrunedFlows: {
            pruned: number;
        };
        QueryHelp: {
            text: string;
        };
        /** @description How much a rule allows each party it counts. */
        Quota: {
            /** @description Requests: `60/m`. The bucket starts full. */
            requests?: components["schemas"]["Rate"];
            /** @description Maximum burst of requests; the rate's number if unset. */
            burst?: number;
            /** @description Input and output tokens: `100000/m`. Estimated when a request starts, settled from its usage. */
            tokens?: components["schemas"]["Rate"];
            /** @description Concurrent requests. */
            concurrent?: number;
            /** @description Tokens per day (UTC). */
            tokens_per_day?: number;
            /** @description Tokens per calendar month (UTC). */
            tokens_per_month?: number;
            /**
             * Format: double
             * @description Dollars per day (UTC).
             */
            money_per_day?: number;
            /**
             * Format: double
             * @description Dollars per calendar month (UTC).
             */
            money_per_month?: number;
        };
        /** @description How much a rule allows each party it counts. */
        QuotaInput: {
            /** @description Requests: `60/m`. The bucket starts full. */
            requests?: components["schemas"]["Rate"] | null;
            /** @description Maximum burst of requests; the rate's number if unset. */
            burst?: number | null;
            /** @description Input and output tokens: `100000/m`. Estimated when a request starts, settled from its usage. */
            tokens?: components["schemas"]["Rate"] | null;
            /** @description Concurrent requests. */
            concurrent?: number | null;
            /** @description Tokens per day (UTC). */
            tokens_per_day?: number | null;
            /** @description Tokens per calendar month (UTC). */
            tokens_per_month?: number | null;
            /**
             * Format: double
             * @description Dollars per day (UTC).
             */
            money_per_day?: number | null;
            /**
             * Format: double
             * @description Dollars per calendar month (UTC).
             */
            money_per_month?: number | null;
        };
        /** @description One rule: whom it counts, which requests it matches, and how much it allows. */
        QuotaRule: {
            /**
             * @description The rule's name in responses, metrics and the API.
             * @default
             */
            name: string;
            /**
             * @description What is counted separately: `global` (everything together), `key`, `team`, `organisation`, `user`, `tag`,
             *     `route`, `provider`, `model` or `client`.
             * @default global
             */
            count_by: components["schemas"]["CountBy"];
            /** @description With `count_by = "tag"`: the tag whose values are counted separately. */
            tag?: string;
            /** @description Only requests with these virtual keys (ids, with `*`); empty: all. */
            keys?: string[];
            /** @description Only requests with keys of these teams (ids, with `*`); empty: all. */
            teams?: string[];
            /** @description Only requests with keys of these organisations (ids, with `*`); empty: all. */
            organisations?: string[];
            /** @description Only requests with one of these tags (`name=value`, with `*`); empty: all. */
            tags?: string[];
            /** @description Only requests of these users (names, with `*`); empty: all. */
            users?: string[];
            /** @description Only requests on these routes (names, with `*`); empty: all. */
            routes?: string[];
            /**
             * @description Only requests to these providers (names, with `*`); empty: all. `media` means the media endpoints,
             *     and `mcp` the MCP gateway; their requests are counted only by rules that name them.
             */
            providers?: string[];
            /** @description Only requests for these models (names, with `*`); empty: all. */
            models?: string[];
            /**
             * @description How much is allowed.
             * @default {}
             */
            allow: components["schemas"]["Quota"];
        };
        /** @description a rate such as 10/s, 60/m, 1000/h or 5000/d */
        Rate: string;
        RebuildResult: {
            /** @description How many exchanges were found in the recorded flows. */
            exchanges: number;
        };
        /** @description What is done with a request. */
        RedactMode: "redact" | "flag" | "off";
        /** @description An exception for some requests. All conditions that are set must match. */
        RedactRoute: {
            /** @description Its name where findings are counted by route; `route 1` and so on, by position, when absent. */
            name?: string;
            /** @description A prefix of the path. */
            path?: string;
            /** @description Header fields that must have these values. */
            headers?: {
                [key: string]: string;
            };
            /** @description The model as named by the client; a trailing `*` matches anything. */
            model?: string;
            /** @description The gateway's name of the upstream, or the provider's. */
            upstream?: string;
            /** @description The authenticated user. */
            user?: string;
            /** @description Overrides the mode. */
            mode?: components["schemas"]["RedactMode"];
            /** @description Overrides the policy file; relative to the data directory. */
            policy?: string;
            /** @description Overrides the context. */
            context?: string;
            /** @description Overrides whether responses are restored. */
            restore?: boolean;
            /** @description Overrides what is done with findings in responses. */
            responses?: components["schemas"]["OutboundMode"];
        };
        /** @description Counters for metrics, since the process started. */
        RedactionCounts: {
            /** @description Requests inspected, with or without findings. */
            requests: number;
            /** @description Requests and responses rejected. */
            refused: number;
            /** @description Findings by type, such as `email-address`; occurrences, not distinct values. */
            found: {
                [key: string]: number;
            };
        };
        /** @description Requests with the same redaction settings, as the web UI lists them. */
        RedactionRoute: {
            /** @description `gateway`, `intercepted`, or an exception's name. */
            name: string;
            /** @description The mode for requests; `None` in an exception inherits it. */
            mode: components["schemas"]["RedactMode"] | null;
            /** @description The mode for findings in responses; `None` in an exception inherits it. */
            responses: components["schemas"]["OutboundMode"] | null;
            file: string;
            /** @description The exception's conditions; `None` for `gateway` and `intercepted`. */
            exception: components["schemas"]["RedactRoute"] | null;
        };
        RedactionTrial: {
            output: string;
            spans: components["schemas"]["Replacement"][];
        };
        RedactionTrialInput: {
            text: string;
            /** @description Interflow's TOML or Phileas JSON; the active policy if absent. */
            policy?: string | null;
        };
        /** @description A reload that succeeded. */
        ReloadReport: {
            /** @description The files that were read: the configuration file and those that it names. */
            files: string[];
            /** @description Keys and sections that differ from those at the start and take effect after a restart only. */
            restart: string[];
        };
        /** @description One replacement, for explanations, audit and metrics. Does not contain the original. */
        Replacement: {
            /** @description The type's name under the policy. */
            type: string;
            /** @description Byte offset in the input (in a JSON body: of the raw bytes). */
            start: number;
            /** @description End offset in bytes, exclusive. */
            end: number;
            /** @description The detector's confidence in percent. */
            confidence: number;
            /** @description The replacement text. */
            replacement: string;
        };
        /** @description A body, as text or bytes. */
        ReplayBody: string | {
            base64: string;
        };
        ReplayError: {
            kind: string;
            message: string;
            /** @description Who caused it: `client`, `upstream`, `config` or `internal`. */
            blame: string;
        };
        ReplayInput: {
            /** @default null */
            method?: string | null;
            /** @default null */
            url?: string | null;
            /**
             * @description `Name: value` sets a field, `Name:` removes it.
             * @default []
             */
            headers?: string[];
            body?: components["schemas"]["ReplayBody"] | null;
        };
        /** @description The outcome of a replay: a response or an error. A failed request is a regular result of the call. */
        ReplayResult: {
            id: string;
            parent: string;
            /** @description Fields that were masked when recorded and therefore not sent, and `?NAME` for parameters that were sent masked. */
            omitted: string[];
            response?: components["schemas"]["ReplayedResponse"];
            error?: components["schemas"]["ReplayError"];
        };
        ReplayedResponse: {
            status: number;
            version: string;
            headers: [
                string,
                string
            ][];
            /** @description Bytes of the body; 0 if it did not end in time. */
            size: number;
            /** @description Whether the response has ended within a minute. */
            complete: boolean;
        };
        Request: {
            method: string;
            /** @description Path and query as the client wrote them; `*` for a server-wide OPTIONS. */
            path: string;
            /** @description The downstream version: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2` (an import may contain others). */
            version: string;
            /** @description The protocol requested by an upgrade or extended CONNECT, such as `websocket`. */
            protocol?: string;
            /** @description The header fields in order, with secrets masked. */
            headers: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /** @description The trailer section (RFC 9110 6.5), with secrets masked. */
            trailers?: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /**
             * @default {
             *       "size": 0,
             *       "kept": 0
             *     }
             */
            body: components["schemas"]["Body"];
        };
        /** @description Changes from the preceding request. */
        RequestChanges: {
            /** @description Null for the first request. */
            changes: components["schemas"]["RequestDiff"] | null;
        };
        RequestDiff: {
            /** @description The model changed: before and after. */
            model?: [
                string,
                string
            ];
            system?: components["schemas"]["TextChange"];
            tools_added?: string[];
            tools_removed?: string[];
            tools_changed?: string[];
            /** @description The same tools in another order. */
            tools_reordered: boolean;
            /** @description Number of equal messages at the beginning. */
            same: number;
            /** @description Messages of the first request after those. */
            removed: components["schemas"]["ChangedMessage"][];
            /** @description Messages of the second request after those. */
            added: components["schemas"]["ChangedMessage"][];
            /** @description A sentence that explains the cache hit or miss. */
            cache: string;
        };
        /** @description The operator's decision on a pending request. */
        Resolution: {
            action: components["schemas"]["ApprovalAction"];
            /** @description Which flows it applies to: only the waiting ones, or more. */
            scope?: components["schemas"]["ResolutionScope"];
            /**
             * @description How long the rule is valid; unlimited if unset. Ignored for `once`.
             * @default null
             */
            for?: components["schemas"]["HumanDuration"] | null;
            /**
             * @description Whether the rule applies to every client, not only to the requesting user, process or session.
             * @default false
             */
            everyone?: boolean;
            /** @description A description of the rule. */
            note?: string | null;
            /** @description A body that replaces the request's, if that was presented. */
            body?: string | null;
        };
        /** @description The effect of a resolution. */
        ResolutionResult: {
            /** @description The number of waiting flows it decided. */
            flows: number;
            rule: components["schemas"]["ApprovalRule"] | null;
        };
        /** @description What a resolution applies to. */
        ResolutionScope: ("host" | "any_port") | "once" | "path" | "subdomains";
        /** @description A pending request that has ended. */
        ResolvedQuestion: {
            /** @description The id by which it is resolved. */
            id: number;
            user: string | null;
            process: string | null;
            container: string | null;
            client: string;
            /** @description The sessions that the flow belongs to. */
            sessions: string[];
            host: string;
            port: number;
            /** @description The method; `None` for a tunnel. */
            method: string | null;
            /** @description The path without its query; `None` for a tunnel. */
            path: string | null;
            /** @description Why a person is asked, if it is not a rule or the mode: what a guardrail found. Such a question is decided once. */
            reason?: string;
            waiting: number;
            /** @description The first of the waiting flows. */
            flows: string[];
            since: components["schemas"]["Timestamp"];
            /** @description When its last flow times out. */
            until: components["schemas"]["Timestamp"];
            /** @description The decision; `None` if there was none. */
            action: components["schemas"]["ApprovalAction"] | null;
            /** @description What decided it: `once`, a rule's id, `timeout`, `gone`, `stopped`. */
            by: string;
            at: components["schemas"]["Timestamp"];
        };
        Response: {
            status: number;
            /** @description The reason phrase as received; empty over HTTP/2. */
            reason?: components["schemas"]["Bytes"];
            /** @description The version on the side it was received from. */
            version: string;
            /** @description The header fields in order, with secrets masked. */
            headers: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /** @description The trailer section (RFC 9110 6.5), with secrets masked. */
            trailers?: [
                components["schemas"]["Bytes"],
                components["schemas"]["Bytes"]
            ][];
            /**
             * @default {
             *       "size": 0,
             *       "kept": 0
             *     }
             */
            body: components["schemas"]["Body"];
        };
        ReturnedCredential: {
            user: string;
            password: string;
        };
        /** @description The difference of two revisions. */
        RevisionDiff: {
            name: string;
            from: number;
            to: number;
            /** @description The lines that differ, with their surroundings; none if the texts are equal. */
            lines: components["schemas"]["SettingsDiffLine"][];
        };
        /** @description Revisions of a setting, the newest first. */
        RevisionList: {
            revisions: components["schemas"]["SettingRevision"][];
        };
        /** @description What somebody may do. A role is a set of these; bodies are a right of their own. */
        Right: "view" | "read_bodies" | "operate" | "administer";
        /** @description The role of a person or a token. */
        Role: "viewer" | "operator" | "admin";
        RollBackInput: {
            /** @description The revision whose text is wanted. */
            revision: number;
            /** @description The newest revision that the caller has seen: if there is a newer one, the request fails. */
            base: number;
        };
        /** @description The newest revision after going back. */
        RolledBack: {
            revision: number;
            /** @description Whether it was made for this; false if the newest one had the same text. */
            changed: boolean;
        };
        RotateInput: {
            /**
             * @description How long the old secret stays valid, too: `24h`. If absent, it is rejected from now on.
             * @default null
             */
            overlap?: components["schemas"]["HumanDuration"] | null;
        };
        /** @description How a deployment is chosen. */
        RouteStrategy: "weighted" | "least-busy" | "latency" | "cost";
        /** @description What a row of the table shows beyond the summary. */
        RowDetails: {
            timings: components["schemas"]["Timings"];
            /** @description The client's program, if it is known. */
            process?: string;
            /** @description The client's container, if it is known. */
            container?: string;
            /** @description The request's `User-Agent`. */
            user_agent?: string;
            comment?: string;
            /**
             * @description What the request does, if its body names it, and the caller may read bodies: a GraphQL operation or a JSON-RPC
             *     method.
             */
            operation?: string;
        };
        RowDetailsById: {
            /** @description By the flow's id; flows that do not exist are absent. */
            flows: {
                [key: string]: components["schemas"]["RowDetails"];
            };
        };
        RuleAction: {
            name: string;
            phase: string;
        };
        /** @description The explanation of one rule for one recorded flow. */
        RuleExplanation: {
            rule: string;
            /** @description Its file and line, as `file:line`. */
            location: string;
            /** @description Whether it matches this flow in at least one phase. */
            matches: boolean;
            /** @description The phases in which it has actions. */
            phases: components["schemas"]["PhaseExplanation"][];
        };
        /** @description An error or a note about a rule file. */
        RuleProblem: {
            /** @description The file's name as given in the configuration. */
            file: string;
            /** @description The line, from 1; 0 if unknown. */
            line: number;
            /** @description The column, from 1; 0 if unknown. */
            column: number;
            rule: string | null;
            /** @description What is wrong and how to correct it. */
            message: string;
        };
        RuleProposal: {
            id: number;
            /** @description The rules, as the text of a rule file. */
            text: string;
            /** @description Why they are proposed. */
            reason: string;
            proposed: components["schemas"]["Timestamp"];
            /** @description Recorded flows on which the rules were tried: the newest ones of the query. */
            tried: number;
            /** @description Which of them each rule would match; at most 50. */
            matches: components["schemas"]["ProposalMatch"][];
        };
        RuleSource: {
            file: string;
            text: string;
        };
        /** @description A rule. Empty fields match everything. */
        RuleSpec: {
            /** @description The decision. */
            action: components["schemas"]["ApprovalAction"];
            /**
             * @description Host patterns: `example.com` (this name only), `*.example.com` (its subdomains only), `.example.com` (both),
             *     addresses, networks (`10.0.0.0/8`), each with an optional `:port`. None: every host; an `allow` rule without any other
             *     condition must say so with `*`.
             */
            hosts?: string[];
            /** @description Ports and port ranges: `443`, `8000-8999`. */
            ports?: string[];
            /** @description Methods: `GET`. */
            methods?: string[];
            /** @description Globs over the path without its query: `/repos/*`. Such a rule applies only to requests that can be inspected. */
            paths?: string[];
            /** @description Users of the proxy. In names of users, agents, processes, containers and sessions, `*` matches any characters. */
            users?: string[];
            /** @description Agents: the name that a session declares, or else the client's user, container or process. */
            agents?: string[];
            /** @description Processes of clients on this machine, by the names of their executables. */
            processes?: string[];
            /** @description Docker or Podman containers of clients, by name. */
            containers?: string[];
            /** @description Agent sessions, by id. */
            sessions?: string[];
            /** @description Expiry, as RFC 3339: `2027-01-31T12:00:00Z`. */
            until?: string;
            /** @description A description. */
            note?: string;
        };
        /** @description A rule. Empty fields match everything. */
        RuleSpecInput: {
            /** @description The decision. */
            action: components["schemas"]["ApprovalAction"];
            /**
             * @description Host patterns: `example.com` (this name only), `*.example.com` (its subdomains only), `.example.com` (both),
             *     addresses, networks (`10.0.0.0/8`), each with an optional `:port`. None: every host; an `allow` rule without any other
             *     condition must say so with `*`.
             */
            hosts?: string[];
            /** @description Ports and port ranges: `443`, `8000-8999`. */
            ports?: string[];
            /** @description Methods: `GET`. */
            methods?: string[];
            /** @description Globs over the path without its query: `/repos/*`. Such a rule applies only to requests that can be inspected. */
            paths?: string[];
            /** @description Users of the proxy. In names of users, agents, processes, containers and sessions, `*` matches any characters. */
            users?: string[];
            /** @description Agents: the name that a session declares, or else the client's user, container or process. */
            agents?: string[];
            /** @description Processes of clients on this machine, by the names of their executables. */
            processes?: string[];
            /** @description Docker or Podman containers of clients, by name. */
            containers?: string[];
            /** @description Agent sessions, by id. */
            sessions?: string[];
            /** @description Expiry, as RFC 3339: `2027-01-31T12:00:00Z`. */
            until?: string | null;
            /** @description A description. */
            note?: string | null;
        };
        RuleTextInput: {
            text: string;
            /** @description The file name that determines the format; otherwise YAML or TOML by the first line. */
            name?: string | null;
            /** @description The text that the change is based on: if the file has changed since, the request fails. */
            base?: string | null;
        };
        RulesView: {
            rules: components["schemas"]["ActiveRule"][];
            files: string[];
            notes: components["schemas"]["RuleProblem"][];
        };
        SavedCollection: {
            revision: string;
        };
        /**
         * @description `http` or `https`; `ws` and `wss` are the same on the wire.
         * @enum {string}
         */
        Scheme: "http" | "https";
        SearchLine: {
            progress: {
                /** @description Flows examined so far. */
                examined: number;
                found: number;
                total: number;
            };
        } | {
            flow: components["schemas"]["FlowSummary"];
        } | {
            done: {
                found: number;
                /** @description Whether every flow was examined; false if the limit was reached. */
                complete: boolean;
            };
        };
        /** @description A secret and its placeholder. */
        SecretSpec: {
            /**
             * @description Its unique label.
             * @default
             */
            label?: string;
            /** @default  */
            value?: string;
            /**
             * @description The only origins that it is sent to: a host pattern, with scheme and port unless they are https
             *     and 443: `api.example.com`, `*.example.com:8443`, `http://10.0.0.7:8080`. For this machine the port is
             *     required: `127.0.0.1:3000`.
             * @default []
             */
            hosts?: string[];
            /**
             * @description The placeholder, generated if unset: at least 16 characters that need no escaping.
             * @default null
             */
            placeholder?: string | null;
            /**
             * @description Whether it may be sent without TLS to hosts given without a scheme; otherwise only to this machine.
             * @default false
             */
            plain_http?: boolean;
        };
        /** @description A secret without its value, for display. */
        SecretView: {
            label: string;
            placeholder: string;
            /** @description The origins it may be sent to, each with scheme and port. */
            hosts: string[];
            /** @description Whether it may be sent without TLS. */
            plain_http: boolean;
            /** @description How often it was inserted since the start. */
            used: number;
            /** @description When it was added, if known. */
            added: components["schemas"]["Timestamp"] | null;
            session: string | null;
        };
        Secrets: {
            secrets: components["schemas"]["SecretView"][];
        };
        /** @description The registration of a client session. */
        SessionSpec: {
            /**
             * @description The session's id, generated if unset. An existing session with this id is replaced.
             * @default null
             */
            id?: string | null;
            /**
             * @description The agent's name, for rules and display.
             * @default null
             */
            agent?: string | null;
            /**
             * @description Flows of this proxy user belong to the session.
             * @default null
             */
            user?: string | null;
            /**
             * @description Flows from this address or network belong to the session.
             * @default null
             */
            client?: string | null;
            /**
             * @description Flows of this process id belong to the session.
             * @default null
             */
            pid?: number | null;
            /**
             * @description Flows of this process name belong to the session.
             * @default null
             */
            process?: string | null;
            /**
             * @description How long the session lives without a heartbeat; default 15m, at most a day.
             * @default null
             */
            ttl?: components["schemas"]["HumanDuration"] | null;
            /**
             * @description Rules that expire with the session.
             * @default []
             */
            rules?: components["schemas"]["RuleSpecInput"][];
            /**
             * @description Secrets that expire with the session.
             * @default []
             */
            secrets?: components["schemas"]["SecretSpec"][];
        };
        SessionView: {
            id: string;
            agent: string | null;
            /** @description Its flows have this user. */
            user: string | null;
            /** @description Its flows have this client address. */
            client: string | null;
            /** @description Its flows have this process id. */
            pid: number | null;
            /** @description Its flows have this process name. */
            process: string | null;
            started: components["schemas"]["Timestamp"];
            /** @description When it expires without another heartbeat. */
            until: components["schemas"]["Timestamp"];
            rules: number;
            secrets: components["schemas"]["SecretView"][];
        };
        Sessions: {
            sessions: components["schemas"]["SessionView"][];
        };
        Setting: {
            /** @description Its path in the file, such as `intercept.mode`. */
            key: string;
            label: string;
            group: components["schemas"]["SettingGroup"];
            /** @description What it does, in Markdown. */
            description: string;
            kind: components["schemas"]["SettingKind"];
            /** @description The values of a choice. */
            choices?: components["schemas"]["SettingChoice"][];
            /** @description What is configured, with credentials masked. */
            value: unknown;
            default: unknown;
            /** @description What the instance runs with until it is restarted, if that is something else. */
            active?: unknown;
            source: components["schemas"]["SettingSource"];
            effect: components["schemas"]["SettingEffect"];
            /** @description Why it cannot be set; absent if it can. */
            locked?: string;
        };
        /** @description A setting to change. */
        SettingChange: {
            key: string;
            /**
             * @description Its new value, as in the file; null removes the key, so that the default applies.
             * @default null
             */
            value?: unknown;
        };
        SettingChoice: {
            value: string;
            description: string;
        };
        /** @description When a change takes effect. */
        SettingEffect: "restart" | "now";
        /**
         * @description Where a setting is shown.
         * @enum {string}
         */
        SettingGroup: "interception" | "recording" | "privacy" | "upstream" | "notifications" | "logging";
        /** @description The form of a setting's value. */
        SettingKind: ("choice" | "text" | "number") | "switch" | "size" | "duration" | "list" | "proxies";
        /** @description A revision of a setting, without its text. */
        SettingRevision: {
            name: string;
            /** @description Counts from 1 for each setting. */
            revision: number;
            /** @description Who made it: a person or a replica. */
            author: string;
            at: components["schemas"]["Timestamp"];
            /** @description The revision whose text it has, if it is a return to that one. */
            restores: number | null;
            bytes: number;
        };
        /** @description Where a value comes from. */
        SettingSource: {
            /** @constant */
            kind: "default";
        } | {
            /** @constant */
            kind: "file";
            line: number;
        } | {
            /** @constant */
            kind: "environment";
            name: string;
        } | {
            /** @constant */
            kind: "option";
            name: string;
        };
        /** @description What a replica did with the newest revision of a setting. */
        SettingStatus: {
            replica: string;
            name: string;
            revision: number;
            at: components["schemas"]["Timestamp"];
            /** @description Why it was refused; the previous one stays active on this replica. */
            refused: string | null;
        };
        SettingsDiffKind: ("same" | "removed" | "added") | "gap";
        /** @description A line of a difference between two texts. */
        SettingsDiffLine: {
            kind: components["schemas"]["SettingsDiffKind"];
            /** @description Its number in the file; in the new text for an added line. Absent for a gap. */
            line?: number;
            text: string;
        };
        SettingsDraft: {
            changes: components["schemas"]["SettingChange"][];
        };
        SettingsInput: {
            changes: components["schemas"]["SettingChange"][];
            /** @description `base` of the preview: if the file has changed since, the request fails. */
            base: string;
        };
        /** @description What changes would do. */
        SettingsPreview: {
            file: string;
            /** @description Identifies the text that the changes are based on; to be sent with them. */
            base: string;
            /** @description The lines of the file that change, with their surroundings; secrets are masked. */
            diff: components["schemas"]["SettingsDiffLine"][];
            changes: components["schemas"]["ChangedSetting"][];
        };
        /** @description The settings of an instance. */
        SettingsView: {
            /** @description The configuration file. */
            file: string;
            /** @description Whether it exists; a first change creates it. */
            exists: boolean;
            /** @description Why nothing can be set; absent if changes are possible. */
            locked?: string;
            settings: components["schemas"]["Setting"][];
        };
        /** @description How clients reach this instance. */
        SetupView: {
            /** @description Address of the proxy for programs on this machine. */
            proxy: string;
            /** @description Address of the gateway for programs on this machine. */
            gateway: string | null;
            /** @description Address of the proxy for other machines; null if it listens on loopback only. */
            lan_proxy: string | null;
            /** @description How commands for this instance begin: `interflow`, with `--data-dir` unless it has the default data directory. */
            command: string;
            /**
             * @description The command that starts this instance: `command`, `run` and the configuration file, unless it is the one in the data
             *     directory.
             */
            run_command: string;
            /** @description The operating system: `linux`, `macos`, `windows`. */
            os: string;
            /** @description The file of the CA's certificate. */
            ca_file: string;
            /** @description A file with the certificates of the system and of the CA. */
            ca_bundle: string;
            /** @description The browsers that can be started, by name. */
            browsers: string[];
            /** @description Page with the certificate and the steps for a phone; null if other machines cannot reach the proxy. */
            phone_page: string | null;
            /** @description Whether the request comes from the machine of the instance, which is where browsers are started. */
            local: boolean;
        };
        /** @description The settings that replicas share. */
        SharedSettingList: {
            /** @description Whether any are shared: `record.store` and `fleet.share` say so. */
            enabled: boolean;
            /** @description The newest revision of each; none of one that was never changed. */
            settings: components["schemas"]["SettingRevision"][];
            /** @description What each replica did with the newest revision that it saw. */
            replicas: components["schemas"]["SettingStatus"][];
        };
        /** @description The shared store as one replica sees it. */
        SharedStoreStats: {
            /** @description Where it is, without the password. */
            address: string;
            /** @description Where bodies are; absent if they are in the database. */
            objects?: string;
            /** @description Bytes of the objects with bodies. */
            object_bytes: number;
            /** @description Finished flows on this replica's disk that were not moved to the shared store yet. */
            waiting_flows: number;
            /** @description Their bytes. */
            waiting_bytes: number;
            /** @description How long the oldest of them has been waiting, in seconds. */
            waiting_seconds: number;
            /** @description Flows that this replica has moved since its start. */
            shipped_flows: number;
            /** @description Attempts to move flows that failed since the start. */
            failures: number;
            /** @description Flows that cannot be moved and stay on this replica's disk; the log says why. */
            stuck_flows: number;
            /** @description By how much this machine's clock is ahead of the shared store's, in milliseconds. */
            clock_ahead_millis: number;
            /** @description Why the shared store cannot be reached or refuses flows; absent if it does neither. */
            error?: string;
        };
        /** @description Health of the shared store. */
        SharedStoreStatus: {
            /** @description Whether the last command succeeded. */
            reachable: boolean;
            /** @description Number of failed commands. */
            errors: number;
            /** @description Requests admitted, or counted in this process, in its place. */
            fallbacks: number;
        };
        /** @enum {string} */
        SortOrder: "newest" | "oldest";
        /** @description Spending by key, team, tag or other columns. */
        SpendReport: {
            /** @description The first day (UTC). */
            since: string;
            /** @description The last day (UTC), included. */
            until: string;
            by: string[];
            /**
             * @description The most expensive first; by time, if a column is a day or a month. Of tags, a request with several counts in the
             *     row of each.
             */
            rows: components["schemas"]["SpendRow"][];
            /** @description Everything, each request once. */
            total: components["schemas"]["SpendRow"];
            /**
             * @description Whether these are the sums of all replicas that share the database of `record.store`, rather than of one instance.
             * @default false
             */
            all_replicas: boolean;
        };
        /** @description A row of a report. */
        SpendRow: {
            /** @description The value of each column of `by`; one that is missing does not apply, such as the team of a key without one. */
            group: {
                [key: string]: string;
            };
            /** Format: double */
            dollars: number;
            requests: number;
            /** @description Requests whose provider reported no usage, which are charged by an estimate. */
            estimated: number;
            input_tokens: number;
            output_tokens: number;
            /** @description The part of `input_tokens` read from a cache. */
            cached_tokens: number;
            /** @description Millionths of a dollar. */
            micro_dollars: number;
            /** @description Requests without a known price, which cost nothing here. */
            unpriced: number;
        };
        Stats: {
            version: string;
            /** @description Time since the start. */
            uptime: components["schemas"]["Microseconds"];
            draining: boolean;
            addresses: components["schemas"]["ListenAddresses"];
            engine: components["schemas"]["ProxyStats"];
            /** @description Upper bounds of the buckets of `engine.latency`, in microseconds. */
            latency_bounds: number[];
            /** @description The store; null if nothing is recorded. */
            store: components["schemas"]["StoreStats"] | null;
            /** @description The archive of the record; null without `record.archive`. */
            archive: components["schemas"]["ArchiveProgress"] | null;
            /** @description Connected clients of the event socket. */
            event_clients: number;
            held: components["schemas"]["HeldCounts"];
        };
        StatusFigures: {
            status: number;
            requests: number;
        };
        /** @description What stays at one deployment. */
        Stickiness: "none" | "session" | "user";
        /** @description Statistics of a store and its recorder. */
        StoreStats: {
            flows: number;
            /** @description Whether new flows are recorded (`record.enabled`). */
            recording: boolean;
            /** @description Flows in progress that are being recorded. */
            open_flows: number;
            segments: number;
            segment_bytes: number;
            /** @description Bytes of the database and its write-ahead log. */
            database_bytes: number;
            /** @description Bytes queued for writing. */
            queue_bytes: number;
            /** @description Flows queued for writing. */
            queue_flows: number;
            /** @description Flows recorded to their end since the start. */
            recorded_flows: number;
            /** @description Flows not recorded at all: the recorder was behind and configured to drop, or suspended. */
            dropped_flows: number;
            /** @description Flows that were accepted but could not be written because of a disk error. */
            lost_flows: number;
            /** @description Bytes of bodies and messages that were not recorded for these reasons. */
            dropped_bytes: number;
            /** @description How often a flow had to wait for the recorder. */
            waits: number;
            /** @description Flows deleted by retention. */
            expired_flows: number;
            /** @description Damaged flow rows that were skipped in lists and exports since the store was opened. */
            damaged_flows: number;
            /** @description Why recording is suspended, if it is. */
            suspended: string | null;
            /** @description Why nothing is deleted because of its age although `record.retention_age` says so: the clock has jumped. */
            retention_waits?: string;
            /** @description The shared store, if there is one: `flows` and `database_bytes` are then its own. */
            shared?: components["schemas"]["SharedStoreStats"];
        };
        /** @description A WebSocket or gRPC call to open, with every variable replaced. */
        StreamInput: {
            /** @description With the scheme `http` or `https`; that of a WebSocket may also be `ws` or `wss`. */
            url: string;
            /**
             * @description Names and values, in order. Fields of the connection and of the handshake are left to the sender, and for gRPC
             *     `Content-Type` and `TE`.
             * @default []
             */
            headers?: [
                string,
                string
            ][];
            /** @description The request as written, which the history keeps. */
            saved?: components["schemas"]["ComposedRequestInput"] | null;
        };
        /** @description All streams, for display. */
        StreamsView: {
            /** @description The active streams. */
            streams: components["schemas"]["ActiveStream"][];
            /** @description Number of finished streams. */
            finished: number;
            /** @description Total bytes sent. */
            bytes: number;
        };
        /** @description The tool call that started a sub-agent. */
        SubagentLink: {
            call: string;
            tool: string;
        };
        SuggestedRule: {
            /** @description How many of the examined flows it would have allowed. */
            flows: number;
            /** @description A sample of the paths. */
            paths_seen: string[];
            rule: components["schemas"]["RuleSpec"];
        };
        /** @description Rules that would allow recorded traffic. */
        Suggestions: {
            suggestions: components["schemas"]["SuggestedRule"][];
            /** @description Number of flows that they are based on. */
            flows_examined: number;
        };
        /** @description Where two texts begin to differ. */
        TextChange: {
            /** @description Length of the common prefix in characters. */
            at: number;
            before: string;
            after: string;
        };
        /** @description A match with its surroundings, in one line. */
        TextExcerpt: {
            /** @description The key of the message. */
            key: string;
            role: components["schemas"]["MessageRole"];
            before: string;
            found: string;
            after: string;
        };
        TextProblem: components["schemas"]["RuleProblem"] | components["schemas"]["PolicyProblem"];
        /** @description A page of a search. */
        TextSearchPage: {
            conversations: components["schemas"]["FoundConversation"][];
            /** @description How many conversations were read. */
            searched: number;
            /** @description The cursor behind which the search continues; null once all conversations were searched. */
            next: string | null;
        };
        /** @description What signed thoughts are bound to. */
        ThinkingBinding: "transcript" | "model";
        /** @description When a model thinks. */
        ThinkingMode: "never" | "optional" | "default" | "always";
        ThreadBranch: {
            /** @description A message's hash, serialized as 32 hexadecimal digits. */
            leaf: string;
            begins: components["schemas"]["BranchReason"];
            /** @description The turn in which it departs from the displayed path. */
            turn: number;
            /** @description When it was last continued, in microseconds since the Unix epoch. */
            at: number;
            /** @description The beginning of its first text. */
            text: string;
        };
        ThreadItem: {
            /** @description A message's hash, serialized as 32 hexadecimal digits. */
            key: string;
            /** @description When it was first seen, in microseconds since the Unix epoch. */
            at: number;
            role: components["schemas"]["MessageRole"];
            /** @description The call that returned it, if it is the first item of that reply. */
            exchange?: number;
            /** @description Set if the item starts a branch. */
            begins?: components["schemas"]["BranchReason"];
        } & ({
            /** @constant */
            kind: "text";
            text: string;
        } | {
            /** @constant */
            kind: "thinking";
            /** @description Empty if the provider does not disclose it. */
            text: string;
        } | {
            /** @constant */
            kind: "context";
            text: string;
        } | {
            /** @constant */
            kind: "tool";
            id: string;
            name: string;
            /** @description The arguments in one line. */
            summary: string;
            input: unknown;
            /** @description The result; `None` while pending. */
            result: components["schemas"]["ToolOutcome"] | null;
            /** @description The conversation of the sub-agent that it started. */
            child?: string;
            /** @description The flow of the MCP gateway that carried the call, if exactly one fits. */
            flow?: string;
        } | (components["schemas"]["Attachment"] & {
            /** @constant */
            kind: "image";
        }) | (components["schemas"]["Attachment"] & {
            /** @constant */
            kind: "document";
        }) | {
            /** @constant */
            kind: "error";
            name: string;
            message: string;
        } | {
            /** @constant */
            kind: "other";
            /** @description The API format's name for it. */
            name: string;
            value: unknown;
        });
        ThreadTurn: {
            /** @description From 1; 0 before the first prompt. */
            number: number;
            /** @description Set if the turn starts a branch. */
            begins?: components["schemas"]["BranchReason"];
            items: components["schemas"]["ThreadItem"][];
            /** @description Its calls, as indices into all calls of the conversation. */
            exchanges: number[];
        };
        /** @description A conversation laid out in turns along one path. */
        ThreadView: {
            /** @description The leaf of this path; `None` if the conversation has no messages yet. */
            leaf: string | null;
            turns: components["schemas"]["ThreadTurn"][];
            /** @description Its calls in order of their start, including those of other branches. */
            exchanges: components["schemas"]["CallView"][];
            branches: components["schemas"]["ThreadBranch"][];
        };
        /** @description A level of service: prices of its own, and a factor for all tokens that have none. */
        TierPrice: {
            /** Format: double */
            factor?: number;
            over?: components["schemas"]["LongPrompt"][];
        } & {
            [key: string]: number | null;
        };
        /** @enum {string} */
        TimeoutAction: "deny" | "continue";
        /**
         * Format: unix-micros
         * @description A point in wall-clock time: microseconds since the Unix epoch.
         */
        Timestamp: UnixMicros;
        /**
         * @description Events of a flow, in microseconds after its start; absent if the event did not occur (a reused connection has no
         *     `dns`, `connect` or `tls`).
         */
        Timings: {
            /** @description The request head was complete. */
            request_head?: number;
            /** @description The last byte of the request body was received. */
            request_body?: number;
            /** @description How long the request waited for a pooled connection after `request_head` (a duration). */
            blocked?: number;
            /** @description How long name resolution took (a duration). */
            dns?: number;
            /** @description How long the TCP connection took, including an upstream proxy's handshake (a duration). */
            connect?: number;
            /** @description How long the TLS handshake with the upstream took (a duration). */
            tls?: number;
            /** @description The request was written to the upstream. */
            request_sent?: number;
            /** @description The response head was received from the upstream. */
            first_byte?: number;
            /** @description The last byte of the response was received. */
            last_byte?: number;
            /** @description The flow ended on both sides. */
            done?: number;
        };
        TokenInput: {
            name: string;
            role: components["schemas"]["Role"];
            /**
             * @description Whether it may read bodies and conversations, too; an admin's always may.
             * @default false
             */
            read_bodies?: boolean;
            /** @description `personal` for programs of one's own, which is what people without the right to administer make; `service` otherwise. */
            kind?: components["schemas"]["TokenKind"] | null;
            /** @description A time from now such as `30d`, a date, or RFC 3339. Absent: it does not expire, which is for services only. */
            expires?: string | null;
        };
        /** @description Whose token it is. */
        TokenKind: "service" | "personal";
        TokenList: {
            tokens: components["schemas"]["TokenView"][];
        };
        /** @description Tokens and cost, summed over exchanges. Counts are those that the provider reported. */
        TokenUsage: {
            exchanges: number;
            input: number;
            output: number;
            /** @description The part of `input` that was read from a cache. */
            cache_read: number;
            /** @description The part of `input` that was written to a cache. */
            cache_write: number;
            /** @description The part of `output` spent on reasoning. */
            reasoning: number;
            /**
             * Format: double
             * @description Cost in US dollars, by the price table at the time of the call; without the exchanges counted in `unpriced`.
             */
            cost: number;
            /** @description Exchanges whose cost is unknown. */
            unpriced: number;
        };
        /** @description A token without its secret. */
        TokenView: {
            id: string;
            name: string;
            kind: components["schemas"]["TokenKind"];
            role: components["schemas"]["Role"];
            /**
             * @description Whether it may read bodies although its role may not.
             * @default false
             */
            read_bodies: boolean;
            /** @description Who made it. */
            created_by: string;
            /** @description The person as the issuer names them: whose personal token it is, or who made it for a service. */
            subject?: string;
            created: components["schemas"]["Timestamp"];
            /** @description Absent if it does not expire. */
            expires?: components["schemas"]["Timestamp"];
            /** @description Its last use, to a minute; absent if it was never used. */
            last_used?: components["schemas"]["Timestamp"];
            expired: boolean;
        };
        ToolOutcome: {
            content: components["schemas"]["ContentBlock"][];
            is_error: boolean;
            /** @description When it was first seen, in microseconds since the Unix epoch. */
            at: number;
        };
        Totals: {
            /** @description Start of the first bucket, in microseconds since the Unix epoch. */
            since: number;
            /** @description Length of a bucket, in microseconds. */
            span: number;
            totals: components["schemas"]["ConversationTotal"][];
        };
        /** @description Bytes transferred through a tunnel. */
        TunnelBytes: {
            sent: number;
            received: number;
        };
        Upstream: {
            /** @description The address connected to: the origin's or the upstream proxy's. */
            peer: string | null;
            local: string | null;
            /** @description The upstream proxy's name, without credentials. */
            via?: string;
            /** @description The protocol version: `HTTP/1.1`, `HTTP/2`. */
            version: string;
            /** @description Connection number, unique within the recording process. */
            connection: number;
            /** @description Whether the connection had carried an earlier request. */
            reused: boolean;
            tls?: components["schemas"]["UpstreamTls"];
        };
        /** @description TLS parameters of the upstream side. */
        UpstreamTls: {
            version?: string;
            cipher?: string;
            alpn?: string;
            /**
             * @description The origin's certificate was not verified, because the configuration disables verification.
             * @default false
             */
            unverified: boolean;
            /** @description The verification error of a certificate that was accepted unverified. */
            problem?: string;
            /**
             * @description Whether the handshake resumed an earlier session.
             * @default false
             */
            resumed: boolean;
            /** @description The impersonated fingerprint, if not Interflow's own. */
            fingerprint?: string;
        };
        /** @description The usage of a key, user, provider and model. */
        UsageRow: {
            /** @description The virtual key's id. */
            key: string | null;
            /** @description The authenticated user, or the key's owner. */
            user: string | null;
            provider: string;
            /** @description The model as requested by the client, or else the one that served. */
            model: string | null;
            /** @description Requests that were admitted and have ended. */
            requests: number;
            /** @description The part of `requests` that were calls of the MCP gateway. */
            mcp_calls: number;
            /** @description Requests that a limit rejected. */
            refused: number;
            input_tokens: number;
            output_tokens: number;
            /** @description The part of `input_tokens` read from a cache. */
            cached_tokens: number;
            /** Format: double */
            dollars: number;
            /** @description Requests without a known price, which `dollars` does not include. */
            unpriced: number;
        };
        ValueCount: {
            value: string;
            count: number;
        };
        ValueCounts: {
            /** @description The most frequent values, the most frequent one first. */
            values: components["schemas"]["ValueCount"][];
            /** @description How many flows were examined: the newest ones. */
            examined: number;
            /** @description Whether these are all flows of the query. */
            complete: boolean;
        };
        /**
         * @description A key of the query language whose values are counted.
         * @enum {string}
         */
        ValueKey: "host" | "method" | "status" | "type" | "tag" | "user" | "process" | "error";
        /** @description A value that replaces `{{name}}`. */
        Variable: {
            name: string;
            value: string;
        };
        /** @description The record of one virtual key; does not contain the key itself. */
        VirtualKeyView: {
            /** @description Its id in limits, logs and audit records. */
            id: string;
            /** @description Who it was issued to; counts as the user of its requests. */
            owner?: string;
            /** @description The operator's note. */
            note?: string;
            created?: string;
            /** @description The first moment at which it is no longer valid. */
            expires?: string;
            revoked?: string;
            /** @description Whether it is rejected until it is enabled again. */
            disabled: boolean;
            /** @description Provider names; `*` matches any run of characters. */
            providers?: string[];
            /** @description Model names; `*` matches any run of characters. */
            models?: string[];
            /** @description Paths; `*` matches any run of characters. */
            paths?: string[];
            /** @description MCP servers and their tools: `SERVER` or `SERVER/TOOL`; `*` matches any run of characters. */
            mcp?: string[];
            /** @description The redaction policy of its requests, by its name in `redact.policies`. */
            policy?: string;
            /** @description Limits of this key, in addition to the configured rules and to those of its team and organisation. */
            limits?: components["schemas"]["Quota"];
            /** @description The team to which it belongs. */
            team?: string;
            /** @description Its own tags, and those of its team and organisation. */
            tags?: {
                [key: string]: string;
            };
            /** @description Until when the secret before the last rotation is valid, too. */
            previous_until?: string;
            state: components["schemas"]["KeyState"];
        };
        VirtualKeys: {
            keys: components["schemas"]["VirtualKeyView"][];
        };
        WebSocketMessageInput: {
            /** @description A text is sent as a text message, bytes as a binary one. */
            message: components["schemas"]["ReplayBody"];
        };
    };
    responses: {
        /** @description an error */
        Error: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type ActiveRule = components['schemas']['ActiveRule'];
export type ActiveStream = components['schemas']['ActiveStream'];
export type AnnotationPatch = components['schemas']['AnnotationPatch'];
export type ApiFormat = components['schemas']['ApiFormat'];
export type ApiToken = components['schemas']['ApiToken'];
export type AppliedSettings = components['schemas']['AppliedSettings'];
export type ApplyInput = components['schemas']['ApplyInput'];
export type ApprovalAction = components['schemas']['ApprovalAction'];
export type ApprovalHistory = components['schemas']['ApprovalHistory'];
export type ApprovalMode = components['schemas']['ApprovalMode'];
export type ApprovalRule = components['schemas']['ApprovalRule'];
export type ApprovalRuleSource = components['schemas']['ApprovalRuleSource'];
export type ApprovalRules = components['schemas']['ApprovalRules'];
export type ApprovalsView = components['schemas']['ApprovalsView'];
export type ArchiveProgress = components['schemas']['ArchiveProgress'];
export type Assertion = components['schemas']['Assertion'];
export type AssertionInput = components['schemas']['AssertionInput'];
export type AssertionKind = components['schemas']['AssertionKind'];
export type Attachment = components['schemas']['Attachment'];
export type Attempt = components['schemas']['Attempt'];
export type AttemptState = components['schemas']['AttemptState'];
export type AuditPage = components['schemas']['AuditPage'];
export type AuditRecord = components['schemas']['AuditRecord'];
export type Authority = components['schemas']['Authority'];
export type Body = components['schemas']['Body'];
export type BodyDiff = components['schemas']['BodyDiff'];
export type BodyView = components['schemas']['BodyView'];
export type BranchReason = components['schemas']['BranchReason'];
export type BreakCause = components['schemas']['BreakCause'];
export type BrowserRequest = components['schemas']['BrowserRequest'];
export type BypassedClient = components['schemas']['BypassedClient'];
export type BypassedClients = components['schemas']['BypassedClients'];
export type Bytes = components['schemas']['Bytes'];
export type CaView = components['schemas']['CaView'];
export type CacheAdvice = components['schemas']['CacheAdvice'];
export type CacheBreak = components['schemas']['CacheBreak'];
export type CallMessagesInput = components['schemas']['CallMessagesInput'];
export type CallPurpose = components['schemas']['CallPurpose'];
export type CallUsage = components['schemas']['CallUsage'];
export type CallView = components['schemas']['CallView'];
export type CarriedCall = components['schemas']['CarriedCall'];
export type CarriedToolCall = components['schemas']['CarriedToolCall'];
export type CertificateView = components['schemas']['CertificateView'];
export type ChangedMessage = components['schemas']['ChangedMessage'];
export type ChangedSetting = components['schemas']['ChangedSetting'];
export type CheckedPolicy = components['schemas']['CheckedPolicy'];
export type CheckedQuery = components['schemas']['CheckedQuery'];
export type CheckedRules = components['schemas']['CheckedRules'];
export type ChildConversation = components['schemas']['ChildConversation'];
export type Client = components['schemas']['Client'];
export type ClientCommand = components['schemas']['ClientCommand'];
export type ClientTls = components['schemas']['ClientTls'];
export type CodeResult = components['schemas']['CodeResult'];
export type Collection = components['schemas']['Collection'];
export type CollectionEntry = components['schemas']['CollectionEntry'];
export type CollectionInput = components['schemas']['CollectionInput'];
export type CollectionUpdate = components['schemas']['CollectionUpdate'];
export type CollectionView = components['schemas']['CollectionView'];
export type Collections = components['schemas']['Collections'];
export type Completion = components['schemas']['Completion'];
export type Completions = components['schemas']['Completions'];
export type ComposeHistory = components['schemas']['ComposeHistory'];
export type ComposeInput = components['schemas']['ComposeInput'];
export type ComposeResult = components['schemas']['ComposeResult'];
export type ComposedRequest = components['schemas']['ComposedRequest'];
export type ComposedRequestInput = components['schemas']['ComposedRequestInput'];
export type ConfigView = components['schemas']['ConfigView'];
export type ContentBlock = components['schemas']['ContentBlock'];
export type ConversationNote = components['schemas']['ConversationNote'];
export type ConversationNotes = components['schemas']['ConversationNotes'];
export type ConversationPage = components['schemas']['ConversationPage'];
export type ConversationPatch = components['schemas']['ConversationPatch'];
export type ConversationTotal = components['schemas']['ConversationTotal'];
export type ConversationView = components['schemas']['ConversationView'];
export type CountBy = components['schemas']['CountBy'];
export type CounterSnapshot = components['schemas']['CounterSnapshot'];
export type CreatedKey = components['schemas']['CreatedKey'];
export type CreatedToken = components['schemas']['CreatedToken'];
export type CredentialRequest = components['schemas']['CredentialRequest'];
export type DecidedFlow = components['schemas']['DecidedFlow'];
export type DecidedItem = components['schemas']['DecidedItem'];
export type DeletedFlows = components['schemas']['DeletedFlows'];
export type DeploymentRole = components['schemas']['DeploymentRole'];
export type DeploymentState = components['schemas']['DeploymentState'];
export type DeploymentView = components['schemas']['DeploymentView'];
export type DescriptorSets = components['schemas']['DescriptorSets'];
export type DiffLine = components['schemas']['DiffLine'];
export type DiffSide = components['schemas']['DiffSide'];
export type Direction = components['schemas']['Direction'];
export type DoctorFinding = components['schemas']['DoctorFinding'];
export type DoctorReport = components['schemas']['DoctorReport'];
export type EndpointOverride = components['schemas']['EndpointOverride'];
export type EndpointOverrideList = components['schemas']['EndpointOverrideList'];
export type EntryKind = components['schemas']['EntryKind'];
export type Environment = components['schemas']['Environment'];
export type EnvironmentInput = components['schemas']['EnvironmentInput'];
export type ErrorBody = components['schemas']['ErrorBody'];
export type ErrorDetails = components['schemas']['ErrorDetails'];
export type EventMessage = components['schemas']['EventMessage'];
export type ExcerptChange = components['schemas']['ExcerptChange'];
export type ExplainedRules = components['schemas']['ExplainedRules'];
export type ExportSelectionInput = components['schemas']['ExportSelectionInput'];
export type FindingState = components['schemas']['FindingState'];
export type FindingsHistory = components['schemas']['FindingsHistory'];
export type FlowCertificates = components['schemas']['FlowCertificates'];
export type FlowChange = components['schemas']['FlowChange'];
export type FlowComparison = components['schemas']['FlowComparison'];
export type FlowConversation = components['schemas']['FlowConversation'];
export type FlowConversations = components['schemas']['FlowConversations'];
export type FlowCount = components['schemas']['FlowCount'];
export type FlowDetail = components['schemas']['FlowDetail'];
export type FlowError = components['schemas']['FlowError'];
export type FlowFigures = components['schemas']['FlowFigures'];
export type FlowId = components['schemas']['FlowId'];
export type FlowIdsInput = components['schemas']['FlowIdsInput'];
export type FlowKind = components['schemas']['FlowKind'];
export type FlowPage = components['schemas']['FlowPage'];
export type FlowState = components['schemas']['FlowState'];
export type FlowSummary = components['schemas']['FlowSummary'];
export type FlushedFlows = components['schemas']['FlushedFlows'];
export type FoundConversation = components['schemas']['FoundConversation'];
export type FoundKind = components['schemas']['FoundKind'];
export type GroupLevel = components['schemas']['GroupLevel'];
export type HeldCounts = components['schemas']['HeldCounts'];
export type HeldFlow = components['schemas']['HeldFlow'];
export type HeldFlows = components['schemas']['HeldFlows'];
export type HeldPart = components['schemas']['HeldPart'];
export type HoldDecision = components['schemas']['HoldDecision'];
export type HumanDuration = components['schemas']['HumanDuration'];
export type IdentityKind = components['schemas']['IdentityKind'];
export type ImportResult = components['schemas']['ImportResult'];
export type InstanceList = components['schemas']['InstanceList'];
export type InstanceRow = components['schemas']['InstanceRow'];
export type Interim = components['schemas']['Interim'];
export type IssuedCredential = components['schemas']['IssuedCredential'];
export type KeyChangeInput = components['schemas']['KeyChangeInput'];
export type KeyGroupInput = components['schemas']['KeyGroupInput'];
export type KeyGroupView = components['schemas']['KeyGroupView'];
export type KeyGroups = components['schemas']['KeyGroups'];
export type KeyState = components['schemas']['KeyState'];
export type LimitsView = components['schemas']['LimitsView'];
export type LinkRequest = components['schemas']['LinkRequest'];
export type ListedConversation = components['schemas']['ListedConversation'];
export type ListenAddresses = components['schemas']['ListenAddresses'];
export type LlmRouteView = components['schemas']['LlmRouteView'];
export type LlmRoutes = components['schemas']['LlmRoutes'];
export type LoginLink = components['schemas']['LoginLink'];
export type LongPrompt = components['schemas']['LongPrompt'];
export type McpAccount = components['schemas']['McpAccount'];
export type McpAccountInput = components['schemas']['McpAccountInput'];
export type McpAccounts = components['schemas']['McpAccounts'];
export type Me = components['schemas']['Me'];
export type MediaLink = components['schemas']['MediaLink'];
export type Message = components['schemas']['Message'];
export type MessageKind = components['schemas']['MessageKind'];
export type MessagePage = components['schemas']['MessagePage'];
export type MessageRole = components['schemas']['MessageRole'];
export type Microseconds = components['schemas']['Microseconds'];
export type MissingReason = components['schemas']['MissingReason'];
export type ModeRequest = components['schemas']['ModeRequest'];
export type ModeView = components['schemas']['ModeView'];
export type ModelCapabilities = components['schemas']['ModelCapabilities'];
export type ModelEfforts = components['schemas']['ModelEfforts'];
export type ModelFigures = components['schemas']['ModelFigures'];
export type ModelLimits = components['schemas']['ModelLimits'];
export type ModelListing = components['schemas']['ModelListing'];
export type ModelPrice = components['schemas']['ModelPrice'];
export type ModelSeries = components['schemas']['ModelSeries'];
export type ModelView = components['schemas']['ModelView'];
export type NamedFigures = components['schemas']['NamedFigures'];
export type NamedSeries = components['schemas']['NamedSeries'];
export type NewKeyInput = components['schemas']['NewKeyInput'];
export type Original = components['schemas']['Original'];
export type OriginalRequest = components['schemas']['OriginalRequest'];
export type OriginalResponse = components['schemas']['OriginalResponse'];
export type OutboundMode = components['schemas']['OutboundMode'];
export type Overview = components['schemas']['Overview'];
export type OverviewIndexing = components['schemas']['OverviewIndexing'];
export type OverviewSample = components['schemas']['OverviewSample'];
export type OverviewSeries = components['schemas']['OverviewSeries'];
export type PendingClient = components['schemas']['PendingClient'];
export type PendingDecision = components['schemas']['PendingDecision'];
export type PendingItem = components['schemas']['PendingItem'];
export type PendingItems = components['schemas']['PendingItems'];
export type PendingKind = components['schemas']['PendingKind'];
export type PendingPart = components['schemas']['PendingPart'];
export type PendingRequest = components['schemas']['PendingRequest'];
export type PhaseExplanation = components['schemas']['PhaseExplanation'];
export type PhaseOutcome = components['schemas']['PhaseOutcome'];
export type Policies = components['schemas']['Policies'];
export type PolicyFileView = components['schemas']['PolicyFileView'];
export type PolicyProblem = components['schemas']['PolicyProblem'];
export type PolicySchema = components['schemas']['PolicySchema'];
export type PolicySource = components['schemas']['PolicySource'];
export type PolicyTextInput = components['schemas']['PolicyTextInput'];
export type PreviousFigures = components['schemas']['PreviousFigures'];
export type PriceHours = components['schemas']['PriceHours'];
export type PriceListDates = components['schemas']['PriceListDates'];
export type Process = components['schemas']['Process'];
export type PromptCacheReport = components['schemas']['PromptCacheReport'];
export type ProposalInput = components['schemas']['ProposalInput'];
export type ProposalList = components['schemas']['ProposalList'];
export type ProposalMatch = components['schemas']['ProposalMatch'];
export type ProtoFiles = components['schemas']['ProtoFiles'];
export type ProxyStats = components['schemas']['ProxyStats'];
export type PruneInput = components['schemas']['PruneInput'];
export type PrunedFlows = components['schemas']['PrunedFlows'];
export type QueryHelp = components['schemas']['QueryHelp'];
export type Quota = components['schemas']['Quota'];
export type QuotaInput = components['schemas']['QuotaInput'];
export type QuotaRule = components['schemas']['QuotaRule'];
export type Rate = components['schemas']['Rate'];
export type RebuildResult = components['schemas']['RebuildResult'];
export type RedactMode = components['schemas']['RedactMode'];
export type RedactRoute = components['schemas']['RedactRoute'];
export type RedactionCounts = components['schemas']['RedactionCounts'];
export type RedactionRoute = components['schemas']['RedactionRoute'];
export type RedactionTrial = components['schemas']['RedactionTrial'];
export type RedactionTrialInput = components['schemas']['RedactionTrialInput'];
export type ReloadReport = components['schemas']['ReloadReport'];
export type Replacement = components['schemas']['Replacement'];
export type ReplayBody = components['schemas']['ReplayBody'];
export type ReplayError = components['schemas']['ReplayError'];
export type ReplayInput = components['schemas']['ReplayInput'];
export type ReplayResult = components['schemas']['ReplayResult'];
export type ReplayedResponse = components['schemas']['ReplayedResponse'];
export type Request = components['schemas']['Request'];
export type RequestChanges = components['schemas']['RequestChanges'];
export type RequestDiff = components['schemas']['RequestDiff'];
export type Resolution = components['schemas']['Resolution'];
export type ResolutionResult = components['schemas']['ResolutionResult'];
export type ResolutionScope = components['schemas']['ResolutionScope'];
export type ResolvedQuestion = components['schemas']['ResolvedQuestion'];
export type Response = components['schemas']['Response'];
export type ReturnedCredential = components['schemas']['ReturnedCredential'];
export type RevisionDiff = components['schemas']['RevisionDiff'];
export type RevisionList = components['schemas']['RevisionList'];
export type Right = components['schemas']['Right'];
export type Role = components['schemas']['Role'];
export type RollBackInput = components['schemas']['RollBackInput'];
export type RolledBack = components['schemas']['RolledBack'];
export type RotateInput = components['schemas']['RotateInput'];
export type RouteStrategy = components['schemas']['RouteStrategy'];
export type RowDetails = components['schemas']['RowDetails'];
export type RowDetailsById = components['schemas']['RowDetailsById'];
export type RuleAction = components['schemas']['RuleAction'];
export type RuleExplanation = components['schemas']['RuleExplanation'];
export type RuleProblem = components['schemas']['RuleProblem'];
export type RuleProposal = components['schemas']['RuleProposal'];
export type RuleSource = components['schemas']['RuleSource'];
export type RuleSpec = components['schemas']['RuleSpec'];
export type RuleSpecInput = components['schemas']['RuleSpecInput'];
export type RuleTextInput = components['schemas']['RuleTextInput'];
export type RulesView = components['schemas']['RulesView'];
export type SavedCollection = components['schemas']['SavedCollection'];
export type Scheme = components['schemas']['Scheme'];
export type SearchLine = components['schemas']['SearchLine'];
export type SecretSpec = components['schemas']['SecretSpec'];
export type SecretView = components['schemas']['SecretView'];
export type Secrets = components['schemas']['Secrets'];
export type SessionSpec = components['schemas']['SessionSpec'];
export type SessionView = components['schemas']['SessionView'];
export type Sessions = components['schemas']['Sessions'];
export type Setting = components['schemas']['Setting'];
export type SettingChange = components['schemas']['SettingChange'];
export type SettingChoice = components['schemas']['SettingChoice'];
export type SettingEffect = components['schemas']['SettingEffect'];
export type SettingGroup = components['schemas']['SettingGroup'];
export type SettingKind = components['schemas']['SettingKind'];
export type SettingRevision = components['schemas']['SettingRevision'];
export type SettingSource = components['schemas']['SettingSource'];
export type SettingStatus = components['schemas']['SettingStatus'];
export type SettingsDiffKind = components['schemas']['SettingsDiffKind'];
export type SettingsDiffLine = components['schemas']['SettingsDiffLine'];
export type SettingsDraft = components['schemas']['SettingsDraft'];
export type SettingsInput = components['schemas']['SettingsInput'];
export type SettingsPreview = components['schemas']['SettingsPreview'];
export type SettingsView = components['schemas']['SettingsView'];
export type SetupView = components['schemas']['SetupView'];
export type SharedSettingList = components['schemas']['SharedSettingList'];
export type SharedStoreStats = components['schemas']['SharedStoreStats'];
export type SharedStoreStatus = components['schemas']['SharedStoreStatus'];
export type SortOrder = components['schemas']['SortOrder'];
export type SpendReport = components['schemas']['SpendReport'];
export type SpendRow = components['schemas']['SpendRow'];
export type Stats = components['schemas']['Stats'];
export type StatusFigures = components['schemas']['StatusFigures'];
export type Stickiness = components['schemas']['Stickiness'];
export type StoreStats = components['schemas']['StoreStats'];
export type StreamInput = components['schemas']['StreamInput'];
export type StreamsView = components['schemas']['StreamsView'];
export type SubagentLink = components['schemas']['SubagentLink'];
export type SuggestedRule = components['schemas']['SuggestedRule'];
export type Suggestions = components['schemas']['Suggestions'];
export type TextChange = components['schemas']['TextChange'];
export type TextExcerpt = components['schemas']['TextExcerpt'];
export type TextProblem = components['schemas']['TextProblem'];
export type TextSearchPage = components['schemas']['TextSearchPage'];
export type ThinkingBinding = components['schemas']['ThinkingBinding'];
export type ThinkingMode = components['schemas']['ThinkingMode'];
export type ThreadBranch = components['schemas']['ThreadBranch'];
export type ThreadItem = components['schemas']['ThreadItem'];
export type ThreadTurn = components['schemas']['ThreadTurn'];
export type ThreadView = components['schemas']['ThreadView'];
export type TierPrice = components['schemas']['TierPrice'];
export type TimeoutAction = components['schemas']['TimeoutAction'];
export type Timestamp = components['schemas']['Timestamp'];
export type Timings = components['schemas']['Timings'];
export type TokenInput = components['schemas']['TokenInput'];
export type TokenKind = components['schemas']['TokenKind'];
export type TokenList = components['schemas']['TokenList'];
export type TokenUsage = components['schemas']['TokenUsage'];
export type TokenView = components['schemas']['TokenView'];
export type ToolOutcome = components['schemas']['ToolOutcome'];
export type Totals = components['schemas']['Totals'];
export type TunnelBytes = components['schemas']['TunnelBytes'];
export type Upstream = components['schemas']['Upstream'];
export type UpstreamTls = components['schemas']['UpstreamTls'];
export type UsageRow = components['schemas']['UsageRow'];
export type ValueCount = components['schemas']['ValueCount'];
export type ValueCounts = components['schemas']['ValueCounts'];
export type ValueKey = components['schemas']['ValueKey'];
export type Variable = components['schemas']['Variable'];
export type VirtualKeyView = components['schemas']['VirtualKeyView'];
export type VirtualKeys = components['schemas']['VirtualKeys'];
export type WebSocketMessageInput = components['schemas']['WebSocketMessageInput'];
export type ResponseError = components['responses']['Error'];
export type $defs = Record<string, never>;
export type operations = Record<string, never>;

/** The routes without parameters in their paths. */
export interface ApiCalls {
    'GET /flows': { request: unknown; response: FlowPage };
    'GET /flows/count': { request: unknown; response: FlowCount };
    'GET /flows/values': { request: unknown; response: ValueCounts };
    'GET /flows/details': { request: unknown; response: RowDetailsById };
    'POST /flows/delete': { request: FlowIdsInput; response: DeletedFlows };
    'POST /flows/flush': { request: unknown; response: FlushedFlows };
    'POST /flows/prune': { request: PruneInput; response: PrunedFlows };
    'GET /diff': { request: unknown; response: FlowComparison };
    'GET /conversations': { request: unknown; response: ConversationPage };
    'GET /conversations/totals': { request: unknown; response: Totals };
    'GET /conversations/search': { request: unknown; response: TextSearchPage };
    'GET /conversations/by-flow': { request: unknown; response: FlowConversations };
    'GET /conversations/tool-call': { request: unknown; response: CarriedCall };
    'POST /conversations/rebuild': { request: unknown; response: RebuildResult };
    'GET /conversations/endpoints': { request: unknown; response: EndpointOverrideList };
    'PUT /conversations/endpoints': { request: EndpointOverrideList; response: EndpointOverrideList };
    'GET /export': { request: unknown; response: unknown };
    'POST /export': { request: ExportSelectionInput; response: unknown };
    'POST /import': { request: unknown; response: ImportResult };
    'GET /search': { request: unknown; response: unknown };
    'POST /compose': { request: ComposeInput; response: ComposeResult };
    'POST /compose/websocket': { request: StreamInput; response: ComposeResult };
    'POST /compose/grpc': { request: StreamInput; response: ComposeResult };
    'GET /compose/schemas': { request: unknown; response: DescriptorSets };
    'POST /compose/schemas': { request: ProtoFiles; response: DescriptorSets };
    'POST /compose/code': { request: ComposeInput; response: CodeResult };
    'GET /compose/history': { request: unknown; response: ComposeHistory };
    'DELETE /compose/history': { request: unknown; response: unknown };
    'GET /collections': { request: unknown; response: Collections };
    'GET /rules': { request: unknown; response: RulesView };
    'GET /rules/source': { request: unknown; response: RuleSource };
    'PUT /rules/source': { request: RuleTextInput; response: RulesView };
    'POST /rules/check': { request: RuleTextInput; response: CheckedRules };
    'GET /rules/schema': { request: unknown; response: unknown };
    'GET /rules/proposals': { request: unknown; response: ProposalList };
    'POST /rules/proposals': { request: ProposalInput; response: RuleProposal };
    'GET /rules/held': { request: unknown; response: HeldFlows };
    'GET /privacy': { request: unknown; response: RedactionCounts };
    'GET /privacy/history': { request: unknown; response: FindingsHistory };
    'POST /privacy/try': { request: RedactionTrialInput; response: RedactionTrial };
    'GET /privacy/policies': { request: unknown; response: Policies };
    'GET /privacy/policies/source': { request: unknown; response: PolicySource };
    'PUT /privacy/policies/source': { request: PolicyTextInput; response: Policies };
    'POST /privacy/check': { request: PolicyTextInput; response: CheckedPolicy };
    'GET /privacy/schema': { request: unknown; response: PolicySchema };
    'GET /approvals': { request: unknown; response: ApprovalsView };
    'GET /pending': { request: unknown; response: PendingItems };
    'GET /approvals/history': { request: unknown; response: ApprovalHistory };
    'POST /approvals/mode': { request: ModeRequest; response: ModeView };
    'GET /approvals/rules': { request: unknown; response: ApprovalRules };
    'POST /approvals/rules': { request: RuleSpecInput; response: ApprovalRule };
    'GET /approvals/suggestions': { request: unknown; response: Suggestions };
    'GET /sessions': { request: unknown; response: Sessions };
    'POST /sessions': { request: SessionSpec; response: SessionView };
    'GET /secrets': { request: unknown; response: Secrets };
    'POST /secrets': { request: SecretSpec; response: SecretView };
    'GET /events': { request: unknown; response: unknown };
    'GET /stats': { request: unknown; response: Stats };
    'GET /instances': { request: unknown; response: InstanceList };
    'GET /overview': { request: unknown; response: Overview };
    'GET /config': { request: unknown; response: ConfigView };
    'POST /reload': { request: unknown; response: ReloadReport };
    'GET /settings': { request: unknown; response: SettingsView };
    'POST /settings': { request: SettingsInput; response: AppliedSettings };
    'POST /settings/preview': { request: SettingsDraft; response: SettingsPreview };
    'GET /fleet/settings': { request: unknown; response: SharedSettingList };
    'GET /ca': { request: unknown; response: CaView };
    'GET /doctor': { request: unknown; response: DoctorReport };
    'GET /passthrough': { request: unknown; response: BypassedClients };
    'DELETE /passthrough': { request: unknown; response: unknown };
    'POST /credentials': { request: CredentialRequest; response: IssuedCredential };
    'POST /credentials/revoke': { request: ReturnedCredential; response: unknown };
    'POST /login-links': { request: unknown; response: LoginLink };
    'GET /setup': { request: unknown; response: SetupView };
    'GET /setup/qr': { request: unknown; response: unknown };
    'POST /browsers': { request: BrowserRequest; response: unknown };
    'GET /query/complete': { request: unknown; response: Completions };
    'GET /query/check': { request: unknown; response: CheckedQuery };
    'GET /query/help': { request: unknown; response: QueryHelp };
    'GET /openapi.json': { request: unknown; response: unknown };
    'GET /media/streams': { request: unknown; response: StreamsView };
    'POST /media/links': { request: LinkRequest; response: MediaLink };
    'GET /llm/routes': { request: unknown; response: LlmRoutes };
    'GET /models': { request: unknown; response: ModelListing };
    'GET /limits': { request: unknown; response: LimitsView };
    'GET /keys': { request: unknown; response: VirtualKeys };
    'POST /keys': { request: NewKeyInput; response: CreatedKey };
    'GET /mcp/accounts': { request: unknown; response: McpAccounts };
    'POST /mcp/accounts/remove': { request: McpAccountInput; response: unknown };
    'GET /teams': { request: unknown; response: KeyGroups };
    'GET /spend': { request: unknown; response: SpendReport };
    'GET /spend.csv': { request: unknown; response: unknown };
    'GET /me': { request: unknown; response: Me };
    'GET /tokens': { request: unknown; response: TokenList };
    'POST /tokens': { request: TokenInput; response: CreatedToken };
    'GET /audit': { request: unknown; response: AuditPage };
}

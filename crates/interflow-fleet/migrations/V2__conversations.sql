-- Conversations, as the indexer builds them from flows. `facts` and the bodies of messages are opaque JSON of the
-- conversations component; long bodies are compressed.

CREATE TABLE conversations(
    id text COLLATE "C" PRIMARY KEY,
    session text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    started bigint NOT NULL,
    updated bigint NOT NULL,
    agent text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    host text COLLATE "C" NOT NULL,
    username text COLLATE "C" NOT NULL,
    title text NOT NULL,
    turns bigint NOT NULL,
    facts text NOT NULL
);
CREATE INDEX conversations_session ON conversations(session, updated);
CREATE INDEX conversations_updated ON conversations(updated, id);
CREATE INDEX conversations_parent ON conversations(parent) WHERE parent IS NOT NULL;

CREATE TABLE conversation_nodes(
    n bigint GENERATED ALWAYS AS IDENTITY,
    conversation text COLLATE "C" NOT NULL,
    key uuid NOT NULL,
    parent uuid,
    at bigint NOT NULL,
    facts text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (conversation, key)
);
ALTER TABLE conversation_nodes ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE conversation_exchanges(
    flow uuid NOT NULL,
    part bigint NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    started bigint NOT NULL,
    leaf uuid,
    agent text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    input bigint NOT NULL,
    output bigint NOT NULL,
    cache_read bigint NOT NULL,
    cache_write bigint NOT NULL,
    reasoning bigint NOT NULL,
    cost double precision,
    facts text NOT NULL,
    failed boolean NOT NULL,
    PRIMARY KEY (flow, part)
);
CREATE INDEX conversation_exchanges_of ON conversation_exchanges(conversation, started);
CREATE INDEX conversation_exchanges_started ON conversation_exchanges(started);

-- The operator's notes: `message` is null for the conversation as a whole.
CREATE TABLE conversation_notes(
    conversation text COLLATE "C" NOT NULL,
    message uuid,
    tags text[] COLLATE "C" NOT NULL,
    comment text
);
CREATE UNIQUE INDEX conversation_notes_of ON conversation_notes(conversation, coalesce(message::text, ''));

-- One row. All flows up to `position` are indexed. `epoch` counts how often another process took over, or all was deleted;
-- `holder` is the process that indexes for the fleet until `expires`: see shared/index.rs.
CREATE TABLE conversation_index(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL DEFAULT 0,
    flow uuid,
    epoch bigint NOT NULL DEFAULT 0,
    holder uuid,
    expires timestamptz NOT NULL DEFAULT '-infinity',
    -- The operator's endpoint overrides.
    endpoints text NOT NULL DEFAULT ''
);
INSERT INTO conversation_index DEFAULT VALUES;

-- The processes that write here, with their last sign of life.
CREATE TABLE instances(
    name text COLLATE "C" PRIMARY KEY,
    version text NOT NULL,
    address text NOT NULL,
    config_digest text NOT NULL,
    started bigint NOT NULL,
    open_flows bigint NOT NULL,
    connections bigint NOT NULL,
    waiting_flows bigint NOT NULL,
    -- By how much its clock is ahead of the server's, in microseconds.
    clock_ahead bigint NOT NULL,
    -- Its name in `conversation_index`.
    holder uuid NOT NULL,
    seen timestamptz NOT NULL
);

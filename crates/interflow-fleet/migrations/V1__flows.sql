-- Flows, their bodies and their messages, partitioned by flow id: the first 48 bits of an id are the milliseconds at
-- which the flow began, so a range of ids is a span of time, and dropping a partition is how old flows are deleted.
-- Texts have the collation "C": `lower` folds ASCII only, as the query language does.

CREATE SEQUENCE flows_position;

CREATE TABLE flows(
    id uuid NOT NULL,
    -- The order of recording, which does not depend on a clock. Replicas commit one after the other, so no number
    -- appears below one that is visible already.
    position bigint NOT NULL DEFAULT nextval('flows_position'),
    replica text COLLATE "C" NOT NULL,
    state smallint NOT NULL,
    kind smallint NOT NULL,
    started bigint NOT NULL,
    duration bigint,
    transport smallint NOT NULL,
    scheme smallint NOT NULL,
    host text COLLATE "C" NOT NULL,
    port bigint NOT NULL,
    method text COLLATE "C",
    path text COLLATE "C",
    url text COLLATE "C" NOT NULL,
    status bigint,
    version text COLLATE "C",
    username text COLLATE "C",
    process text COLLATE "C",
    client text COLLATE "C",
    listener text COLLATE "C" NOT NULL,
    request_size bigint NOT NULL,
    response_size bigint NOT NULL,
    request_type text COLLATE "C",
    response_type text COLLATE "C",
    messages bigint NOT NULL,
    error text COLLATE "C",
    tags text[] COLLATE "C" NOT NULL,
    stored bigint NOT NULL,
    kept bigint NOT NULL,
    -- Everything else of a flow, small bodies included, in the encoding of the embedded store.
    detail bytea NOT NULL,
    PRIMARY KEY (id)
) PARTITION BY RANGE (id);

-- Imported flows may be of any age.
CREATE TABLE flows_default PARTITION OF flows DEFAULT;

CREATE INDEX flows_position_index ON flows(position);
CREATE INDEX flows_host ON flows(lower(host), id);
CREATE INDEX flows_status ON flows(status, id);
CREATE INDEX flows_method ON flows(lower(method), id);
CREATE INDEX flows_username ON flows(lower(username), id) WHERE username IS NOT NULL;
CREATE INDEX flows_started ON flows(started);
CREATE INDEX flows_tags ON flows USING gin(tags);

-- Bodies longer than what is kept in `flows.detail`, in pieces: `side` is 0 and 1 for the bodies of request and response as
-- sent on, 2 and 3 for the same as received before they were edited, 4 and 5 for the certificate chains shown to the
-- client and by the origin. `at` is the offset of the piece in the body, `size` its length there. `coding` is 0 for
-- plain bytes and 1 for zstd. The bytes are in `bytes`, or `stored_size` of them at `object_offset` of an object.
CREATE TABLE bodies(
    flow uuid NOT NULL,
    side smallint NOT NULL,
    at bigint NOT NULL,
    size bigint NOT NULL,
    coding smallint NOT NULL,
    bytes bytea,
    object text COLLATE "C",
    object_offset bigint,
    stored_size bigint NOT NULL,
    PRIMARY KEY (flow, side, at)
) PARTITION BY RANGE (flow);
ALTER TABLE bodies ALTER COLUMN bytes SET STORAGE EXTERNAL;
CREATE TABLE bodies_default PARTITION OF bodies DEFAULT;

-- The messages of WebSockets and event streams.
CREATE TABLE messages(
    flow uuid NOT NULL,
    index bigint NOT NULL,
    direction smallint NOT NULL,
    kind smallint NOT NULL,
    at bigint NOT NULL,
    size bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (flow, index)
) PARTITION BY RANGE (flow);
CREATE TABLE messages_default PARTITION OF messages DEFAULT;

-- Search for parts of URLs and hosts, where the extension is there or may be made. Without it they are found too, by
-- reading all rows.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'pg_trgm cannot be made: %', SQLERRM;
END $$;
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm') THEN
        CREATE INDEX flows_url_trigrams ON flows USING gin(lower(url) gin_trgm_ops);
    END IF;
END $$;

-- Requests that wait for a decision, as each replica shows its own; see shared/pending.rs. Unlogged: what waits is gone
-- with the replica that holds it, and its contents have no business in the server's log or its backups.

-- The processes that hold requests, each until it renews `expires`. `replica` is the name that people see.
CREATE UNLOGGED TABLE pending_holders(
    instance text COLLATE "C" PRIMARY KEY,
    replica text NOT NULL,
    expires timestamptz NOT NULL
);

-- `item` is the API's JSON. `revision` distinguishes the texts of one item.
CREATE UNLOGGED TABLE pending_items(
    instance text COLLATE "C" NOT NULL REFERENCES pending_holders ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    item text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (instance, id)
);

-- Decisions of people at other replicas. The holder claims one before it acts on it, and writes what came of it; until
-- then whoever decided may take it back. Nothing is claimed after `expires`.
CREATE UNLOGGED TABLE pending_decisions(
    id uuid PRIMARY KEY,
    instance text COLLATE "C" NOT NULL REFERENCES pending_holders ON DELETE CASCADE,
    item text COLLATE "C" NOT NULL,
    decision text NOT NULL,
    actor text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires timestamptz NOT NULL,
    claimed boolean NOT NULL DEFAULT false,
    outcome text
);
CREATE INDEX pending_decisions_open ON pending_decisions(instance) WHERE NOT claimed;

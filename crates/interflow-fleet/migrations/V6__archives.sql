-- How far the archive of the record is at each place (`record.archive`), and which process writes it for the fleet: `holder`,
-- until `expires`: see shared/archive.rs. `cursor` is opaque JSON of the archive. Flows that began before `keep_from` and have
-- at most this `position` are archived, so that retention may delete them.
CREATE TABLE archives(
    place text COLLATE "C" PRIMARY KEY,
    cursor text,
    keep_from uuid,
    position bigint NOT NULL DEFAULT 0,
    -- The name of the process, as in `instances`.
    holder text COLLATE "C",
    -- Whether the holder writes, rather than waiting for the end of an hour.
    writing boolean NOT NULL DEFAULT false,
    -- Counts how often another process took over: it is part of the names of files.
    epoch bigint NOT NULL DEFAULT 0,
    expires timestamptz NOT NULL DEFAULT '-infinity'
);

-- Flows in progress, as each replica shows those that run for long; see shared/running.rs. Unlogged: what runs ends with
-- the replica that carries it, which records it then. The columns are those of `flows`, so that the same conditions hold
-- for both: whoever adds one there adds it here. `position` is the replica's revision that wrote the row last.
-- A row of a flow that is in `flows` too, or of a replica without a recent row in `instances`, counts as not there.
CREATE UNLOGGED TABLE running_flows(LIKE flows, PRIMARY KEY (id)) WITH (fillfactor = 50);

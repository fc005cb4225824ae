-- Objects that hold bodies of flows, below the place that `object_place` names. `pieces` counts the rows of `bodies` that are in
-- an object: null while it is uploaded, or if that was cut off; 0 once nobody needs it, until it is deleted there.
CREATE TABLE objects(
    name text COLLATE "C" PRIMARY KEY,
    pieces bigint,
    bytes bigint NOT NULL DEFAULT 0,
    made timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX objects_unneeded ON objects(made) WHERE pieces IS NULL OR pieces = 0;

-- One row, once there are objects: names are relative to it, so it is the same for all replicas.
CREATE TABLE object_place(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    url text NOT NULL
);

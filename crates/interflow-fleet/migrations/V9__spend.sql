-- What keys, teams and tags have spent: sums of a day by account, which is JSON. Each process of a replica is a writer,
-- and replaces its own sums, which only grow; reports add writers up. An entry of an index has at most 2704 bytes, and an
-- account may be longer: `digest` stands for it.
CREATE TABLE spend(
    day DATE NOT NULL, writer TEXT COLLATE "C" NOT NULL, digest BYTEA NOT NULL, account TEXT NOT NULL,
    requests BIGINT NOT NULL, estimated BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL, micro_dollars BIGINT NOT NULL, unpriced BIGINT NOT NULL,
    PRIMARY KEY(day, writer, digest));

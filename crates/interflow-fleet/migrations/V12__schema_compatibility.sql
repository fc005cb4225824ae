-- One row: the oldest version of the schema that a build may know and still work with this one, so that replicas of the
-- release before go on, and start again, while others are replaced. A migration that such a build cannot work with sets it to
-- its own number; one that only adds what older builds do not touch leaves it as it is.
CREATE TABLE schema_compatibility(
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    oldest bigint NOT NULL
);
INSERT INTO schema_compatibility(oldest) VALUES (12);

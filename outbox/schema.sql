-- The outbox of Sluice: jobs that transactions enqueue, and a relay sends to the server.
-- Columns are the fields of POST /v1/jobs, with the same meaning; NULL is a field's default.
CREATE TABLE IF NOT EXISTS sluice_outbox (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       text NOT NULL,
    type         text,
    target       json, -- {"url": "https://…"}; with a name: {"name": "…", "url": "…"}
    payload      json NOT NULL,
    class        text,
    key          text,
    cost         bigint,
    max_attempts integer,
    timeout_ms   bigint,
    keep_results boolean,
    run_at       timestamptz,
    "unique"     text NOT NULL DEFAULT gen_random_uuid()::text,

    -- These belong to the relay.
    created_at timestamptz NOT NULL DEFAULT now(),
    due_at     timestamptz NOT NULL DEFAULT now(), -- when the row is sent
    error      text,                               -- why the server refused it last

    CONSTRAINT "tenant: want 1 to 256 printable characters" CHECK (tenant ~ '^[^\x01-\x1f\x7f]+$' AND char_length(tenant) <= 256),
    CONSTRAINT "type: want 1 to 128 of letters, digits and . _ : -" CHECK (type ~ '^[A-Za-z0-9._:-]{0,128}$'),
    CONSTRAINT "target: want a JSON object" CHECK (json_typeof(target) = 'object'),
    CONSTRAINT "type, target: give one of them" CHECK ((coalesce(type, '') = '') <> (target IS NULL)),
    CONSTRAINT "payload: want at most 1 MiB" CHECK (octet_length(payload::text) <= 1048576),
    CONSTRAINT "class: want high, normal or low" CHECK (class IN ('', 'high', 'normal', 'low')),
    CONSTRAINT "key: want at most 256 printable characters" CHECK (key ~ '^[^\x01-\x1f\x7f]*$' AND char_length(key) <= 256),
    CONSTRAINT "cost: want 1 to 1000000, or 0 for the default" CHECK (cost BETWEEN 0 AND 1000000),
    CONSTRAINT "max_attempts: want 1 to 100, or 0 for the default" CHECK (max_attempts BETWEEN 0 AND 100),
    CONSTRAINT "timeout_ms: want 1 to 86400000, or 0 for the default" CHECK (timeout_ms BETWEEN 0 AND 86400000),
    CONSTRAINT "unique: want 1 to 256 bytes" CHECK (octet_length("unique") BETWEEN 1 AND 256)
);
CREATE INDEX IF NOT EXISTS sluice_outbox_due ON sluice_outbox (due_at);

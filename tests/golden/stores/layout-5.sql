BEGIN TRANSACTION;
CREATE TABLE audit (
	number INTEGER NOT NULL,
	at TEXT NOT NULL,
	who TEXT NOT NULL,
	what TEXT NOT NULL,
	campaign TEXT,
	detail TEXT NOT NULL,
	PRIMARY KEY (number)
);
INSERT INTO "audit" VALUES(1,'2026-01-01','operator','create','abababababababababababababababab','');
CREATE TABLE campaigns (
	id TEXT NOT NULL,
	spec TEXT NOT NULL,
	state TEXT NOT NULL,
	round INTEGER NOT NULL,
	machine BLOB NOT NULL,
	release BLOB,
	moves INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "campaigns" VALUES('abababababababababababababababab','{"name": "old"}','open',1,X'6D6163',NULL,2);
CREATE TABLE drafts (
	id TEXT NOT NULL,
	title TEXT NOT NULL,
	changed TEXT NOT NULL,
	version INTEGER NOT NULL,
	fields TEXT NOT NULL,
	PRIMARY KEY (id)
);
INSERT INTO "drafts" VALUES('cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd','A draft','2026-01-02',1,'{"title": "A draft"}');
CREATE TABLE facts (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "facts" VALUES('version','5');
CREATE TABLE keys (
	name TEXT NOT NULL,
	role TEXT NOT NULL,
	hash BLOB NOT NULL,
	created TEXT NOT NULL,
	revoked TEXT,
	PRIMARY KEY (name),
	UNIQUE (hash)
);
INSERT INTO "keys" VALUES('operator','curator',X'6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B6B','2026-01-01',NULL);
CREATE TABLE publications (
	campaign TEXT NOT NULL,
	public INTEGER NOT NULL,
	digest TEXT NOT NULL,
	release BLOB NOT NULL,
	listed INTEGER DEFAULT '1' NOT NULL,
	PRIMARY KEY (campaign),
	FOREIGN KEY(campaign) REFERENCES campaigns (id)
);
CREATE TABLE reports (
	round_key INTEGER NOT NULL,
	report_id BLOB NOT NULL,
	question INTEGER NOT NULL,
	payload BLOB NOT NULL,
	PRIMARY KEY (round_key, report_id)
)
 WITHOUT ROWID

;
INSERT INTO "reports" VALUES(1,X'01',1,X'02');
INSERT INTO "reports" VALUES(1,X'03',2,X'01');
INSERT INTO "reports" VALUES(2,X'02',0,X'03');
CREATE TABLE rounds (
	"key" INTEGER NOT NULL,
	campaign TEXT NOT NULL,
	number INTEGER NOT NULL,
	state TEXT NOT NULL,
	start DOUBLE NOT NULL,
	"plan" TEXT NOT NULL,
	tally BLOB,
	epoch INTEGER DEFAULT '0' NOT NULL,
	closes DOUBLE,
	held INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY ("key"),
	UNIQUE (campaign, number),
	FOREIGN KEY(campaign) REFERENCES campaigns (id)
);
INSERT INTO "rounds" VALUES(1,'abababababababababababababababab',0,'closed',0.0,'{}',X'746F',0,1900000000.0,0);
INSERT INTO "rounds" VALUES(2,'abababababababababababababababab',1,'open',0.5,'{}',NULL,0,1900000000.0,0);
CREATE TABLE running (
	round_key INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	worker TEXT NOT NULL,
	tally BLOB,
	PRIMARY KEY (round_key, epoch, worker)
);
CREATE TABLE sessions (
	hash BLOB NOT NULL,
	key_hash BLOB NOT NULL,
	expires BIGINT NOT NULL,
	PRIMARY KEY (hash)
);
CREATE TABLE sign_ins (
	span BIGINT NOT NULL,
	failures INTEGER NOT NULL,
	PRIMARY KEY (span)
);
CREATE TABLE tokens (
	campaign TEXT NOT NULL,
	hash BLOB NOT NULL,
	PRIMARY KEY (campaign, hash)
)
 WITHOUT ROWID

;
INSERT INTO "tokens" VALUES('abababababababababababababababab',X'AA');
COMMIT;

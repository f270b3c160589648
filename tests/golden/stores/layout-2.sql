BEGIN TRANSACTION;
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
CREATE TABLE facts (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "facts" VALUES('version','2');
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
	PRIMARY KEY ("key"),
	UNIQUE (campaign, number),
	FOREIGN KEY(campaign) REFERENCES campaigns (id)
);
INSERT INTO "rounds" VALUES(1,'abababababababababababababababab',0,'closed',0.0,'{}',X'746F',0);
INSERT INTO "rounds" VALUES(2,'abababababababababababababababab',1,'open',0.5,'{}',NULL,0);
CREATE TABLE running (
	round_key INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	worker TEXT NOT NULL,
	tally BLOB,
	PRIMARY KEY (round_key, epoch, worker)
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

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
. "$(dirname "$0")/../lib/case.sh"
. "$(dirname "$0")/lib.bash"
need jq sqlite3

cat >"$INPUT/work.sql" <<'END'
PRAGMA cache_size = -16000;
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, born INTEGER, note BLOB);
CREATE TABLE visit(person INTEGER REFERENCES person, place INTEGER, at INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
	INSERT INTO person SELECT i, 'name' || (i * 7919 % 10007), 1900 + i * 31 % 120, zeroblob(i % 300) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
	INSERT INTO visit SELECT i * 7907 % 30000 + 1, i * 104729 % 500, i * 15485863 % 1000000 FROM n;
INSERT INTO person VALUES(30001, 'blob', 0, zeroblob(3000000));
CREATE INDEX visit_person ON visit(person);
CREATE INDEX person_name ON person(name, born);
SELECT place, count(*), min(at), max(at) FROM visit GROUP BY place ORDER BY 2 DESC, 1 LIMIT 20;
SELECT born, count(DISTINCT place), sum(at) FROM person JOIN visit ON person.id = visit.person
	GROUP BY born ORDER BY born LIMIT 30;
SELECT group_concat(name, ',') FROM (SELECT name FROM person WHERE born > 1990 ORDER BY name, id);
SELECT a.name, b.name FROM person a JOIN person b ON a.name = b.name AND a.id < b.id
	ORDER BY a.id, b.id LIMIT 10;
UPDATE person SET note = CAST('n' || name AS BLOB) WHERE id % 3 = 0;
DELETE FROM visit WHERE place % 7 = 0;
SELECT count(*), sum(length(note)) FROM person;
VACUUM;
PRAGMA integrity_check;
SELECT count(*) FROM visit;
END
job <<'END'
sqlite3 data.db <"$INPUT/work.sql"
echo "status $?"
sqlite3 data.db .dump | sha256sum
sha256sum data.db
sqlite3 data.db 'SELECT * FROM nothing'
echo "status $?"
END
RANGES=(64K- 1-)
same "sqlite3" sqlite3
finish

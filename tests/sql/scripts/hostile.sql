-- name: a mistyped word, with its line
-- group: hostile
SELECT id
FORM nodes;
---- error: near "nodes": syntax error

-- name: a table that there is not
-- group: hostile
SELECT * FROM node;
---- error: no such table: node

-- name: a column that there is not
-- group: hostile
SELECT ids FROM nodes;
---- error: no such column: ids

-- name: nodes are not written to
-- group: hostile
UPDATE nodes SET label = 1 WHERE id = 1;
---- error: nodes may not be modified

-- name: nor deleted
-- group: hostile
DELETE FROM features;
---- error: features may not be modified

-- name: nor added
-- group: hostile
INSERT INTO edges VALUES (1, 2, 0);
---- error: edges may not be modified

-- name: no table takes the place of one of them
-- group: hostile
DROP TABLE nodes;
---- error: may not be dropped

-- name: no other file is opened
-- group: hostile
-- only: quarry
ATTACH 'other.db' AS other;
---- error: too many attached databases

-- name: nor written
-- group: hostile
-- only: quarry
VACUUM INTO 'copy.db';
---- error: 

-- name: nor read
-- group: hostile
-- only: quarry
SELECT readfile('/etc/passwd');
---- error: no such function: readfile

-- name: nor loaded
-- group: hostile
-- only: quarry
SELECT load_extension('x.so');
---- error: 

-- name: a view can be made
-- group: hostile
CREATE VIEW seen AS SELECT id FROM nodes;
----

-- name: but does not reach the tables
-- group: hostile
SELECT * FROM seen;
---- error: unsafe use of virtual table

-- name: a temporary one does
-- group: hostile
CREATE TEMP VIEW looked AS SELECT max(id) AS last FROM nodes;
SELECT last = (SELECT max(id) FROM nodes) AS same FROM looked;
----
same
1

-- name: a query that no table can answer
-- group: hostile
SELECT * FROM neighbors;
---- error: no query solution

-- name: too many columns of a list
-- group: hostile
SELECT id FROM nodes WHERE (id, label) IN ((1, 1), (2, 2), (3, 3));
----
id
1
2

-- name: the table functions are no functions
-- group: hostile
SELECT neighbors(1);
---- error: no such function: neighbors

-- name: and a table function with an unknown name
-- group: hostile
SELECT * FROM neighbours(1);
---- error: no such table: neighbours


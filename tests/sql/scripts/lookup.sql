-- name: a node by its id
-- group: lookup
SELECT * FROM nodes WHERE id = 3;
----
id,name,split,label,in_degree,out_degree,timestamp
3,node-3,train,0,2,1,0

-- name: an id that there is not
-- group: lookup
SELECT id FROM nodes WHERE id = 10;
----
id

-- name: a negative id
-- group: lookup
SELECT id FROM nodes WHERE id = -1;
----
id

-- name: no id is NULL
-- group: lookup
SELECT id FROM nodes WHERE id = NULL;
----
id

-- name: an id as a text is compared as a number
-- group: lookup
SELECT id FROM nodes WHERE id = '7';
----
id
7

-- name: an id as a whole real
-- group: lookup
SELECT id FROM nodes WHERE id = 7.0;
----
id
7

-- name: an id between two
-- group: lookup
SELECT id FROM nodes WHERE id = 7.5;
----
id

-- name: a text that is no number
-- group: lookup
SELECT id FROM nodes WHERE id = 'seven';
----
id

-- name: a blob is no id
-- group: lookup
SELECT id FROM nodes WHERE id = x'07';
----
id

-- name: a list comes in order, each once
-- group: lookup
SELECT id FROM nodes WHERE id IN (5, 2, 5, 99, -4, NULL, 8);
----
id
2
5
8

-- name: a list of mixed types
-- group: lookup
SELECT id FROM nodes WHERE id IN ('1', 2.0, 3.5, x'04');
----
id
1
2

-- name: an empty list
-- group: lookup
SELECT id FROM nodes WHERE id IN ();
----
id

-- name: a list from a query
-- group: lookup
SELECT id, label FROM nodes WHERE id IN (SELECT dst FROM edges WHERE src = 0);
----
id,label
1,1
2,2
3,0

-- name: a list and a range
-- group: lookup
SELECT id FROM nodes WHERE id IN (1, 4, 6, 9) AND id > 3 AND id <= 6;
----
id
4
6

-- name: two lists
-- group: lookup
SELECT id FROM nodes WHERE id IN (1, 2, 3) AND id IN (3, 2, 7);
----
id
2
3

-- name: a value and a list
-- group: lookup
SELECT id FROM nodes WHERE id = 2 AND id IN (1, 2);
----
id
2

-- name: alternatives
-- group: lookup
SELECT id FROM nodes WHERE id = 2 OR id = 5 OR id > 8 ORDER BY id;
----
id
2
5
9

-- name: all but a list
-- group: lookup
SELECT id FROM nodes WHERE id NOT IN (0, 1, 2, 3, 4, 5);
----
id
6
7
8
9

-- name: a name
-- group: lookup
SELECT id, name FROM nodes WHERE name = 'node-4';
----
id,name
4,node-4

-- name: a name with quotes and a semicolon
-- group: lookup
SELECT id, name FROM nodes WHERE name = 'O''Neil; DROP "x"';
----
id,name
9,"O'Neil; DROP ""x"""

-- name: names
-- group: lookup
SELECT id FROM nodes WHERE name IN ('node-8', 'node-1', 'nobody');
----
id
1
8

-- name: a name and an id that is not its
-- group: lookup
SELECT id FROM nodes WHERE name = 'node-4' AND id = 5;
----
id

-- name: a name in another collation
-- group: lookup
SELECT id FROM nodes WHERE name = 'NODE-4' COLLATE NOCASE;
----
id
4

-- name: the rowid of a node
-- group: lookup
SELECT id FROM nodes WHERE rowid = 6;
----
id
6


-- name: from
-- group: range
SELECT id FROM nodes WHERE id >= 7;
----
id
7
8
9

-- name: above
-- group: range
SELECT id FROM nodes WHERE id > 7;
----
id
8
9

-- name: up to
-- group: range
SELECT id FROM nodes WHERE id <= 2;
----
id
0
1
2

-- name: below
-- group: range
SELECT id FROM nodes WHERE id < 2;
----
id
0
1

-- name: between
-- group: range
SELECT id FROM nodes WHERE id BETWEEN 3 AND 5;
----
id
3
4
5

-- name: a range that is empty
-- group: range
SELECT id FROM nodes WHERE id > 5 AND id < 5;
----
id

-- name: below a fraction
-- group: range
SELECT id FROM nodes WHERE id < 2.5;
----
id
0
1
2

-- name: above a fraction
-- group: range
SELECT id FROM nodes WHERE id > 6.5;
----
id
7
8
9

-- name: from a negative fraction
-- group: range
SELECT count(*) FROM nodes WHERE id >= -0.5;
----
count(*)
10

-- name: beyond all integers
-- group: range
SELECT count(*) FROM nodes WHERE id < 1e300 AND id > -1e300;
----
count(*)
10

-- name: every number is below a text
-- group: range
SELECT count(*) FROM nodes WHERE id < 'a';
----
count(*)
10

-- name: no number is above a text
-- group: range
SELECT count(*) FROM nodes WHERE id > 'a';
----
count(*)
0

-- name: a limit
-- group: range
SELECT id FROM nodes LIMIT 3;
----
id
0
1
2

-- name: a limit and an offset
-- group: range
SELECT id FROM nodes LIMIT 3 OFFSET 4;
----
id
4
5
6

-- name: an offset beyond the end
-- group: range
SELECT id FROM nodes LIMIT 3 OFFSET 40;
----
id

-- name: an offset near the end
-- group: range
SELECT id FROM nodes LIMIT 3 OFFSET 8;
----
id
8
9

-- name: no limit is negative
-- group: range
SELECT id FROM nodes LIMIT -1 OFFSET 7;
----
id
7
8
9

-- name: a limit of nothing
-- group: range
SELECT id FROM nodes LIMIT 0;
----
id

-- name: a limit in a range
-- group: range
SELECT id FROM nodes WHERE id > 2 ORDER BY id LIMIT 2 OFFSET 1;
----
id
4
5

-- name: a limit of a list
-- group: range
SELECT id FROM nodes WHERE id IN (9, 1, 5) ORDER BY id LIMIT 1 OFFSET 1;
----
id
5

-- name: a limit behind a condition that SQLite tests
-- group: range
SELECT id FROM nodes WHERE id % 2 = 1 LIMIT 2 OFFSET 1;
----
id
3
5

-- name: a limit behind a condition on a label
-- group: range
SELECT id FROM nodes WHERE label = 1 LIMIT 1 OFFSET 1;
----
id
4

-- name: a limit behind two columns that are equal
-- group: range
SELECT id FROM nodes WHERE in_degree = out_degree LIMIT 2 OFFSET 1;
----
id
5
6

-- name: backwards
-- group: range
SELECT id FROM nodes ORDER BY id DESC LIMIT 3;
----
id
9
8
7

-- name: the first by another column
-- group: range
SELECT id, label FROM nodes ORDER BY label DESC, id LIMIT 2;
----
id,label
2,2
5,2

-- name: a limit in a subquery
-- group: range
SELECT sum(id) FROM (SELECT id FROM nodes LIMIT 4 OFFSET 2);
----
sum(id)
14

-- name: distinct with a limit
-- group: range
SELECT DISTINCT split FROM nodes ORDER BY split LIMIT 2;
----
split
none
test


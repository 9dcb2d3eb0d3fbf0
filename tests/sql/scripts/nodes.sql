-- name: how many
-- group: nodes
SELECT count(*) FROM nodes;
----
count(*)
10

-- name: by split
-- group: nodes
SELECT split, count(*) AS nodes FROM nodes GROUP BY split ORDER BY split;
----
split,nodes
none,1
test,2
train,5
valid,2

-- name: of one split
-- group: nodes
SELECT id FROM nodes WHERE split = 'valid';
----
id
5
6

-- name: of two splits
-- group: nodes
SELECT id FROM nodes WHERE split IN ('test', 'none');
----
id
7
8
9

-- name: no split is a number
-- group: nodes
SELECT count(*) FROM nodes WHERE split = 1;
----
count(*)
0

-- name: of no split that there is
-- group: nodes
SELECT count(*) FROM nodes WHERE split = 'Train';
----
count(*)
0

-- name: by label
-- group: nodes
SELECT label, count(*) FROM nodes GROUP BY label ORDER BY label;
----
label,count(*)
,1
0,3
1,3
2,3

-- name: of a label
-- group: nodes
SELECT id FROM nodes WHERE label = 2;
----
id
2
5
8

-- name: of a label as a text
-- group: nodes
SELECT id FROM nodes WHERE label = '2';
----
id
2
5
8

-- name: without a label
-- group: nodes
SELECT id FROM nodes WHERE label IS NULL;
----
id
9

-- name: -1 is no label
-- group: nodes
SELECT id FROM nodes WHERE label = -1;
----
id

-- name: of a label and a split
-- group: nodes
SELECT id FROM nodes WHERE label = 1 AND split = 'train';
----
id
1
4

-- name: of labels in a range
-- group: nodes
SELECT id FROM nodes WHERE label >= 1 AND id < 5;
----
id
1
2
4

-- name: of labels and ids
-- group: nodes
SELECT id, label FROM nodes WHERE id IN (0, 1, 3, 4) AND label IN (0, 2);
----
id,label
0,0
3,0

-- name: degrees
-- group: nodes
SELECT id, in_degree, out_degree FROM nodes WHERE in_degree > 1 OR out_degree > 1;
----
id,in_degree,out_degree
0,1,4
1,2,1
2,2,1
3,2,1

-- name: degrees add up to the edges
-- group: nodes
SELECT sum(in_degree), sum(out_degree), (SELECT count(*) FROM edges) FROM nodes;
----
sum(in_degree),sum(out_degree),(SELECT count(*) FROM edges)
13,13,13

-- name: names
-- group: nodes
SELECT name FROM nodes WHERE id >= 8;
----
name
node-8
"O'Neil; DROP ""x"""

-- name: nobody wrote to them
-- group: nodes
SELECT max(timestamp) FROM nodes;
----
max(timestamp)
0

-- name: a join with itself
-- group: nodes
SELECT count(*) FROM nodes AS a JOIN nodes AS b ON b.id = a.id + 1;
----
count(*)
9

-- name: a join by label
-- group: nodes
SELECT a.id, b.id FROM nodes a, nodes b WHERE a.label = b.label AND a.id < b.id AND a.split = 'train' AND b.id < 4;
----
id,id
0,3


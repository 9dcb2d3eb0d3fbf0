-- name: all, by destination
-- group: edges
SELECT * FROM edges;
----
src,dst,relation,weight
9,0,0,1.0
0,1,0,1.0
0,1,1,0.5
0,2,1,-2.0
1,2,0,1.0
0,3,1,0.100000001490116
2,3,0,1.0
3,4,0,1.0
4,5,0,1.0
5,6,0,1.0
6,7,0,1.0
7,8,0,1.0
8,9,0,1.0

-- name: into a node
-- group: edges
SELECT * FROM edges WHERE dst = 1;
----
src,dst,relation,weight
0,1,0,1.0
0,1,1,0.5

-- name: out of a node
-- group: edges
SELECT * FROM edges WHERE src = 0 ORDER BY dst, relation;
----
src,dst,relation,weight
0,1,0,1.0
0,1,1,0.5
0,2,1,-2.0
0,3,1,0.100000001490116

-- name: from one to another
-- group: edges
SELECT * FROM edges WHERE src = 0 AND dst = 1 ORDER BY relation;
----
src,dst,relation,weight
0,1,0,1.0
0,1,1,0.5

-- name: that are not there
-- group: edges
SELECT * FROM edges WHERE src = 5 AND dst = 1;
----
src,dst,relation,weight

-- name: of a relation
-- group: edges
SELECT src, dst FROM edges WHERE relation = 1 ORDER BY dst;
----
src,dst
0,1
0,2
0,3

-- name: of a relation out of a node
-- group: edges
SELECT dst FROM edges WHERE src = 0 AND relation = 0;
----
dst
1

-- name: into several
-- group: edges
SELECT src, dst FROM edges WHERE dst IN (9, 0, 3) ORDER BY dst, src;
----
src,dst
9,0
0,3
2,3
8,9

-- name: out of several
-- group: edges
SELECT src, dst FROM edges WHERE src IN (2, 7) ORDER BY src;
----
src,dst
2,3
7,8

-- name: into a range
-- group: edges
SELECT count(*) FROM edges WHERE dst BETWEEN 1 AND 3;
----
count(*)
6

-- name: out of a range
-- group: edges
SELECT src, dst FROM edges WHERE src > 7 ORDER BY src;
----
src,dst
8,9
9,0

-- name: between ranges
-- group: edges
SELECT src, dst FROM edges WHERE src < 2 AND dst > 1 ORDER BY src, dst;
----
src,dst
0,2
0,3
1,2

-- name: either end
-- group: edges
SELECT src, dst, relation FROM edges WHERE src = 0 OR dst = 0 ORDER BY src, dst, relation;
----
src,dst,relation
0,1,0
0,1,1
0,2,1
0,3,1
9,0,0

-- name: an edge that both conditions find comes once
-- group: edges
SELECT count(*) FROM edges WHERE src = 0 OR dst = 1;
----
count(*)
4

-- name: a limit and an offset
-- group: edges
SELECT src, dst FROM edges LIMIT 3 OFFSET 2;
----
src,dst
0,1
0,2
1,2

-- name: a limit of the edges into a node
-- group: edges
SELECT src, relation FROM edges WHERE dst = 1 LIMIT 1 OFFSET 1;
----
src,relation
0,1

-- name: by relation
-- group: edges
SELECT r.name, count(*) FROM edges e JOIN relations r ON r.id = e.relation GROUP BY r.id ORDER BY r.id;
----
name,count(*)
cites,10
likes,3

-- name: two hops
-- group: edges
SELECT DISTINCT b.dst FROM edges a JOIN edges b ON b.src = a.dst WHERE a.src = 0 ORDER BY 1;
----
dst
2
3
4

-- name: degrees are counts of edges
-- group: edges
SELECT count(*) FROM nodes n WHERE n.in_degree <> (SELECT count(*) FROM edges WHERE dst = n.id);
----
count(*)
0

-- name: and so are out-degrees
-- group: edges
SELECT count(*) FROM nodes n WHERE n.out_degree <> (SELECT count(*) FROM edges WHERE src = n.id);
----
count(*)
0

-- name: what a walk reaches
-- group: edges
WITH RECURSIVE reach(id, hop) AS (SELECT 7, 0 UNION SELECT e.dst, hop + 1 FROM reach JOIN edges e ON e.src = reach.id WHERE hop < 4) SELECT min(hop), id FROM reach GROUP BY id ORDER BY 1, 2;
----
min(hop),id
0,7
1,8
2,9
3,0
4,1
4,2
4,3

-- name: ends have names
-- group: edges
SELECT s.name, d.name FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = e.dst WHERE e.dst = 0;
----
name,name
"O'Neil; DROP ""x""",node-0

-- name: by weight
-- group: edges
SELECT src, dst, weight FROM edges WHERE weight <> 1 ORDER BY weight;
----
src,dst,weight
0,2,-2.0
0,3,0.100000001490116
0,1,0.5

-- name: sums of weights
-- group: edges
SELECT src, count(*), sum(weight) FROM edges WHERE src < 2 GROUP BY src;
----
src,count(*),sum(weight)
0,4,-0.399999998509884
1,1,1.0

-- name: weights of a relation into a node
-- group: edges
SELECT weight, typeof(weight) FROM edges WHERE dst = 1 AND relation = 1;
----
weight,typeof(weight)
0.5,real

-- name: a row
-- group: features
SELECT id, "table", hex(feature), dim, timestamp FROM features WHERE id = 2;
----
id,table,hex(feature),dim,timestamp
2,feature,000000400000803F000000C00000803F,4,0

-- name: as JSON
-- group: features
SELECT vec_to_json(feature) FROM features WHERE id IN (1, 3);
----
vec_to_json(feature)
"[1,0.5,-1,1]"
"[3,1.5,-3,1]"

-- name: how many
-- group: features
SELECT count(*), min(dim), max(dim) FROM features;
----
count(*),min(dim),max(dim)
10,4,4

-- name: of a table
-- group: features
SELECT count(*) FROM features WHERE "table" = 'feature' AND id > 6;
----
count(*)
3

-- name: of no table
-- group: features
SELECT count(*) FROM features WHERE "table" = 'label';
----
count(*)
0

-- name: lengths
-- group: features
SELECT sum(length(feature)), sum(vec_dim(feature)) FROM features;
----
sum(length(feature)),sum(vec_dim(feature))
160,40

-- name: all by a scan
-- group: features
SELECT vec_to_json(feature) FROM features;
----
vec_to_json(feature)
"[0,0,-0,1]"
"[1,0.5,-1,1]"
"[2,1,-2,1]"
"[3,1.5,-3,1]"
"[4,2,-4,1]"
"[5,2.5,-5,1]"
"[6,3,-6,1]"
"[7,3.5,-7,1]"
"[8,4,-8,1]"
"[9,4.5,-9,1]"

-- name: a range
-- group: features
SELECT id, vec_to_json(feature) FROM features WHERE id >= 8;
----
id,vec_to_json(feature)
8,"[8,4,-8,1]"
9,"[9,4.5,-9,1]"

-- name: a limit and an offset
-- group: features
SELECT id, vec_to_json(feature) FROM features LIMIT 2 OFFSET 5;
----
id,vec_to_json(feature)
5,"[5,2.5,-5,1]"
6,"[6,3,-6,1]"

-- name: a page of a list
-- group: features
SELECT id, vec_to_json(feature) FROM features WHERE id IN (8, 3, 1, 6) ORDER BY id LIMIT 2 OFFSET 1;
----
id,vec_to_json(feature)
3,"[3,1.5,-3,1]"
6,"[6,3,-6,1]"

-- name: the nearest
-- group: features
SELECT id FROM features ORDER BY vec_l2(feature, vec_from_json('[4.2, 2.1, -4.2, 1]')) LIMIT 3;
----
id
4
5
3

-- name: the nearest to a node
-- group: features
SELECT b.id FROM features a JOIN features b ON a.id = 7 AND b.id <> 7 ORDER BY vec_l2(a.feature, b.feature), b.id LIMIT 2;
----
id
6
8

-- name: a join with nodes
-- group: features
SELECT n.id, n.label, vec_to_json(f.feature) FROM nodes n JOIN features f ON f.id = n.id WHERE n.split = 'test';
----
id,label,vec_to_json(f.feature)
7,1,"[7,3.5,-7,1]"
8,2,"[8,4,-8,1]"

-- name: a mean by label
-- group: features
SELECT n.label, avg(vec_dot(f.feature, f.feature)) FROM nodes n JOIN features f ON f.id = n.id GROUP BY n.label ORDER BY n.label;
----
label,"avg(vec_dot(f.feature, f.feature))"
,183.25
0,34.75
1,50.5
2,70.75

-- name: neighbors of a node
-- group: features
SELECT vec_to_json(f.feature) FROM edges e JOIN features f ON f.id = e.src WHERE e.dst = 2 ORDER BY f.id;
----
vec_to_json(f.feature)
"[0,0,-0,1]"
"[1,0.5,-1,1]"

-- name: kept in a table of one's own
-- group: features
CREATE TEMP TABLE kept AS SELECT id, feature FROM features WHERE id < 3;
----

-- name: and read from there
-- group: features
SELECT id, vec_to_json(feature) FROM kept ORDER BY id;
----
id,vec_to_json(feature)
0,"[0,0,-0,1]"
1,"[1,0.5,-1,1]"
2,"[2,1,-2,1]"


-- name: who cites a node
-- group: functions
SELECT * FROM neighbors(1);
----
node,hop
0,1

-- name: and who cites those
-- group: functions
SELECT node, hop FROM neighbors(3, 2);
----
node,hop
0,1
2,1
1,2
9,2

-- name: its arguments are columns
-- group: functions
SELECT node, id, hops, direction FROM neighbors(4, 1, 'in');
----
node,id,hops,direction
3,4,1,in

-- name: of each node of a query
-- group: functions
SELECT n.id, e.node FROM nodes n, neighbors(n.id) e WHERE n.id IN (0, 2) ORDER BY n.id, e.node;
----
id,node
0,9
2,0
2,1

-- name: their features
-- group: functions
SELECT e.node, vec_to_json(f.feature) FROM neighbors(2) e JOIN features f ON f.id = e.node ORDER BY 1;
----
node,vec_to_json(f.feature)
0,"[0,0,-0,1]"
1,"[1,0.5,-1,1]"

-- name: a block that takes all neighbors
-- group: functions
SELECT * FROM sample_block('[3]', '[5, 5]', 1) ORDER BY hop, dst, src;
----
hop,src,dst
1,0,3
1,2,3
2,9,0
2,0,2
2,1,2

-- name: a row as JSON
-- group: functions
SELECT * FROM feature_json(3);
----
table,feature
feature,"[3,1.5,-3,1]"

-- name: rows of some nodes as JSON
-- group: functions
SELECT n.id, j.feature FROM nodes n JOIN feature_json(n.id) j WHERE n.id IN (1, 6);
----
id,feature
1,"[1,0.5,-1,1]"
6,"[6,3,-6,1]"

-- name: a block of two seeds
-- group: functions
SELECT count(*), max(hop) FROM sample_block('[0, 5]', '[1]', 9);
----
count(*),max(hop)
2,1


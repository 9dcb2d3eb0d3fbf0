-- name: a vector from JSON and back
-- group: vectors
SELECT vec_to_json(vec_from_json(' [1, -2.5 ,3e2] '));
----
"vec_to_json(vec_from_json(' [1, -2.5 ,3e2] '))"
"[1,-2.5,300]"

-- name: an empty vector
-- group: vectors
SELECT vec_dim(vec_from_json('[]')), vec_to_json(vec_from_json('[]'));
----
vec_dim(vec_from_json('[]')),vec_to_json(vec_from_json('[]'))
0,[]

-- name: bytes of a vector
-- group: vectors
SELECT hex(vec_from_json('[1, 2]'));
----
"hex(vec_from_json('[1, 2]'))"
0000803F00000040

-- name: a dot product
-- group: vectors
SELECT vec_dot(vec_from_json('[1, 2, 3]'), vec_from_json('[4, -5, 6]'));
----
"vec_dot(vec_from_json('[1, 2, 3]'), vec_from_json('[4, -5, 6]'))"
12.0

-- name: a dot product of more elements than lanes
-- group: vectors
SELECT vec_dot(vec_from_json('[1,2,3,4,5,6,7,8,9,10,11]'), vec_from_json('[1,1,1,1,1,1,1,1,1,1,1]'));
----
"vec_dot(vec_from_json('[1,2,3,4,5,6,7,8,9,10,11]'), vec_from_json('[1,1,1,1,1,1,1,1,1,1,1]'))"
66.0

-- name: a distance
-- group: vectors
SELECT vec_l2(vec_from_json('[1, 2]'), vec_from_json('[4, 6]'));
----
"vec_l2(vec_from_json('[1, 2]'), vec_from_json('[4, 6]'))"
5.0

-- name: a cosine
-- group: vectors
SELECT vec_cosine(vec_from_json('[3, 4]'), vec_from_json('[4, 3]'));
----
"vec_cosine(vec_from_json('[3, 4]'), vec_from_json('[4, 3]'))"
0.96

-- name: a zero vector has no direction
-- group: vectors
SELECT vec_cosine(vec_from_json('[0, 0]'), vec_from_json('[4, 3]')) IS NULL;
----
"vec_cosine(vec_from_json('[0, 0]'), vec_from_json('[4, 3]')) IS NULL"
1

-- name: a slice
-- group: vectors
SELECT vec_to_json(vec_slice(vec_from_json('[1, 2, 3, 4]'), 1, 3));
----
"vec_to_json(vec_slice(vec_from_json('[1, 2, 3, 4]'), 1, 3))"
"[2,3]"

-- name: an empty slice
-- group: vectors
SELECT vec_dim(vec_slice(vec_from_json('[1, 2]'), 2, 2));
----
"vec_dim(vec_slice(vec_from_json('[1, 2]'), 2, 2))"
0

-- name: NULL in, NULL out
-- group: vectors
SELECT vec_dot(NULL, x'00000000') IS NULL, vec_dim(NULL) IS NULL, vec_slice(x'00000000', NULL, 1) IS NULL, vec_to_json(NULL) IS NULL;
----
"vec_dot(NULL, x'00000000') IS NULL",vec_dim(NULL) IS NULL,"vec_slice(x'00000000', NULL, 1) IS NULL",vec_to_json(NULL) IS NULL
1,1,1,1

-- name: two lengths
-- group: vectors
SELECT vec_dot(vec_from_json('[1]'), vec_from_json('[1, 2]'));
---- error: vec_dot: vectors of 1 and 2 elements

-- name: a text is no vector
-- group: vectors
SELECT vec_l2('abcd', x'00000000');
---- error: vec_l2: argument 1 is no vector

-- name: a number is no vector
-- group: vectors
SELECT vec_dim(17);
---- error: vec_dim: argument 1 is no vector

-- name: a blob of five bytes
-- group: vectors
SELECT vec_dim(x'0000000000');
---- error: a blob of 5 bytes

-- name: a slice beyond the end
-- group: vectors
SELECT vec_slice(vec_from_json('[1, 2]'), 1, 3);
---- error: elements 1 to 3 of a vector of 2

-- name: a slice that ends before it begins
-- group: vectors
SELECT vec_slice(vec_from_json('[1, 2]'), 2, 1);
---- error: elements 2 to 1 of a vector of 2

-- name: JSON that ends early
-- group: vectors
SELECT vec_from_json('[1, 2');
---- error: byte 5: expected a JSON array

-- name: JSON of words
-- group: vectors
SELECT vec_from_json('[one]');
---- error: byte 1: expected a JSON array

-- name: JSON with something behind it
-- group: vectors
SELECT vec_from_json('[1] 2');
---- error: byte 4: expected a JSON array

-- name: a number that float32 has not
-- group: vectors
SELECT vec_from_json('[1e60]');
---- error: byte 1: expected a JSON array

-- name: infinity is no JSON
-- group: vectors
SELECT vec_from_json('[-inf]');
---- error: byte 1: expected a JSON array


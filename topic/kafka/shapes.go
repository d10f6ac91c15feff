package kafka

// shapes are the shapes of the supported requests, by their numbers. Fields are b, h, i and q for
// integers of 1, 2, 4 and 8 bytes, u for a UUID, s for a string and y for bytes; *i is an array of
// i, [...] an array of structures, and ?[...] a nullable structure. "3+:" precedes fields of
// version 3 and later, "-3:" up to it, "2-4:" between. #1[...] is a structure in the tagged field
// 1; other tagged fields, which may follow each structure, need no check.
var shapes = map[int16]shape{
	0:  newShape("3+:s h i [-12:s 13+:u [i y]]"),
	1:  newShape("-14:i i i 3+:i 4+:b 7+:i 7+:i [-12:s 13+:u [i 9+:i q 12+:i 5+:q i]] 7+:[7-12:s 13+:u *i] 11+:s #1[i q]"),
	2:  newShape("i 2+:b [s [i 4+:i q]] 10+:i"),
	3:  newShape("[10+:u s] 4+:b 8-10:b 8+:b"),
	8:  newShape("s 1+:i 1+:s 7+:s 2-4:q [-9:s 10+:u [i q 1-1:q 6+:i s]]"),
	9:  newShape("-7:s -7:[s *i] 8+:[s 9+:s 9+:i [8-9:s 10+:u *i]] 7+:b"),
	10: newShape("-3:s 1+:b 4+:*s"),
	11: newShape("s i 1+:i s 5+:s s [s y] 8+:s"),
	12: newShape("s i s 3+:s"),
	13: newShape("s -2:s 3+:[s s 5+:s]"),
	14: newShape("s i s 3+:s 5+:s 5+:s [s y]"),
	15: newShape("*s 3+:b"),
	16: newShape("4+:*s 5+:*s"),
	17: newShape("s"),
	18: newShape("3+:s 3+:s 5+:s 5+:i"),
	19: newShape("[s i h [i *i] [s s]] i 1+:b"),
	20: newShape("-5:*s 6+:[s u] i"),
	21: newShape("[s [i q]] i"),
	22: newShape("s i 3+:q 3+:h"),
	23: newShape("3+:i [s [i 2+:i i]]"),
	24: newShape("-3:s -3:q -3:h -3:[s *i] 4+:[s q h b [s *i]]"),
	25: newShape("s q h s"),
	26: newShape("s q h b"),
	28: newShape("s s q h 3+:i 3+:s 3+:s [-5:s 6+:u [i q 2+:i s]]"),
	32: newShape("[b s *s] 1+:b 3+:b"),
	33: newShape("[b s [s s]] b"),
	35: newShape("[s *i]"),
	36: newShape("y"),
	37: newShape("[s i [*i]] i b"),
	42: newShape("*s"),
	43: newShape("1+:b [s *i] i"),
	44: newShape("[b s [s b s]] b"),
	45: newShape("i 1+:b [s [i *i]]"),
	46: newShape("i [s *i]"),
	47: newShape("s [s [i]]"),
	60: newShape("b 1+:b 2+:b"),
	61: newShape("[s *i]"),
	65: newShape("*s"),
	66: newShape("*s *q 1+:q 2+:s"),
	75: newShape("[s] i ?[s i]"),
}

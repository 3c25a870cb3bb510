package osiertest

// couchChain is what CouchDB 3.5.0 answered to a chain of edits of one new
// document: the body was put; then, where more revisions are given, the same
// body on it, a deletion, and the body again.
type couchChain struct {
	body string
	revs []string
}

func couchChains() []couchChain {
	return []couchChain{
		{`{}`, []string{"1-967a00dff5e02add41819138abb3284d", "2-7051cbe5c8faecd085a3fa619e6e6337", "3-7379b9e515b161226c6559d90c4dc49f", "4-901a49d84ee911ece5cd32c741ed27cc"}},
		{`{"a":1,"b":2}`, []string{"1-25f9b97d75a648d1fcd23f0a73d2776e"}},
		{`{"a":-2147483648}`, []string{"1-199e39432186df98ba32343ab606e80c", "2-d810d1fb97839879b5de7a502467c935", "3-6ec29c02ccc32f0961a0ff6d2faf4c76", "4-6f594b78242910179cda2346575bc1e4"}},
		{`{"a":9223372036854775807}`, []string{"1-729be045ef8a718380903269c1be0189", "2-65d9acb8aa41318f54bca2007e9e72ad", "3-bb8617f3e6e541b14e220dda3288920a", "4-f3992b446d5387296caec05255a32ca8"}},
		{`{"a":123456789012345678901234567890}`, []string{"1-da1bd830ce681811ea5692e0ec6bd683", "2-e686bc27c1ea27ec3a23300ba0ad5ab3", "3-25a34c7b3605ca6f917db1aa8f9359c5", "4-0686339147039fad273718fce57b26f3"}},
		{`{"a":0.0}`, []string{"1-f8fc1b07134fb0e1af62a5cb42046ee1"}},
		{`{"a":5e-324}`, []string{"1-f8fc1b07134fb0e1af62a5cb42046ee1"}},
		{`{"a":-1.5}`, []string{"1-a3b7c4aa394b6625062dbdbdb4da5081", "2-973cda78924d47ded6593544d0524617", "3-b62d6958b35436201412cf447909d5c5", "4-f988bfbbceb5f15c6b602771a7bad45b"}},
		{`{"a":true}`, []string{"1-db4b9d6334adba89803cb4b34a70eba5"}},
		{`{"a":"h\u00e9"}`, []string{"1-5ca403511d707f65d0993bed5767e7fb", "2-c91dac5b5ef78465939e0053560e27c4", "3-a244f37703c8de221646d0a3ba987acd", "4-2a1ce532d2161d7a14f27c9829f0260f"}},
		{`{"a":"\ud83d\ude00"}`, []string{"1-6209036231a849bef7b48602e7245033"}},
		{`{"a":"line\nbreak\ttab\u0000nul"}`, []string{"1-0576640507fbd0e35081454af2921102"}},
		{`{"a":[1,2,3]}`, []string{"1-308048961a84beb0c9e99e07facf0f5f"}},
		{`{"a":[1,"x",null,true,1.5]}`, []string{"1-896c306a5d0f297047c73278f390d495"}},
		{`{"a":[[],{},[[]]]}`, []string{"1-a25c77523ff6957cb938cba570537170", "2-4f886ddb0fc280c08f8af433c1c8f98d", "3-224e845aa79a3b15bcea68e18f49bd1e", "4-1b9717589f6139ca7ea32596ea9d8f3f"}},
		{`{"":1}`, []string{"1-2ce45c66c96d19abe1f98075da2b5a51", "2-b5807b3996773bf3b67611d2f96cf474", "3-c5d53d124a938bbf58c2611cdfc038d4", "4-f8abe710e3156c7b400219bb47d90d6f"}},
		{`{"a":1,"a":2}`, []string{"1-3975759ccff3842adf690a5c10caee42"}},
	}
}

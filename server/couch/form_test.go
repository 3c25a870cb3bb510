package couch

import (
	"bytes"
	"mime/multipart"
	"strings"
	"testing"
)

func TestFormUpload(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	rev := r.want(201, "PUT", "/db/a", `{"v":1}`).rev(t)
	form := func(fields map[string]string, file string) (body, contentType string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for name, value := range fields {
			if err := w.WriteField(name, value); err != nil {
				t.Fatal(err)
			}
		}
		if file != "" {
			f, err := w.CreateFormFile("_attachments", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write([]byte("bytes")); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String(), w.FormDataContentType()
	}
	own := "Referer: " + r.http.URL + "/page"
	body, contentType := form(map[string]string{"_rev": rev}, "x.png")
	r.want(400, "POST", "/db/a", body, "Content-Type: "+contentType, "Referer: http://elsewhere.example/")
	rev = r.want(201, "POST", "/db/a", body, "Content-Type: "+contentType, own).rev(t)
	if got := r.want(200, "GET", "/db/a/x.png", ""); string(got.body) != "bytes" {
		t.Errorf("the attachment is %q", got.body)
	}
	if got := r.want(200, "GET", "/db/a", ""); !strings.Contains(string(got.body), `"v":1`) {
		t.Errorf("the document is %s", got.body)
	}
	body, contentType = form(map[string]string{"_rev": rev, "_doc": `{"v":2}`}, "")
	r.want(201, "POST", "/db/a", body, "Content-Type: "+contentType, own)
	r.want(409, "POST", "/db/a", body, "Content-Type: "+contentType, own)
	body, contentType = form(map[string]string{"_rev": rev}, "")
	r.want(400, "POST", "/db/a", body, "Content-Type: "+contentType, own)
}

// Go's net/http against the origin: plain, intercepted, a body up and down; proxy and trust come from the environment.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func ask(client *http.Client, method, url string, body []byte) []byte {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	must(err)
	answer, err := client.Do(request)
	must(err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	must(err)
	if answer.StatusCode != 200 {
		must(fmt.Errorf("%s: %s: %s", url, answer.Status, all))
	}
	return all
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	client := &http.Client{Timeout: 20 * time.Second}
	body := bytes.Repeat([]byte("0123456789"), 10000)
	if n := len(ask(client, "GET", os.Getenv("PLAIN")+"/bytes/100", nil)); n != 100 {
		must(fmt.Errorf("%d bytes", n))
	}
	for i := 0; i < 2; i++ {
		if !bytes.Equal(ask(client, "POST", os.Getenv("SECURE")+"/echo", body), body) {
			must(fmt.Errorf("the echo differs"))
		}
	}
	fmt.Println("fine")
}

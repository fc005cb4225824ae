// Command goproxy is a forward proxy on elazarl/goproxy with a certificate store, for comparison in Interflow's benchmarks.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net/http"
	"os"
	"sync"

	"github.com/elazarl/goproxy"
)

// certStore keeps each host's certificate, as the library's documentation advises for speed.
type certStore struct {
	mu    sync.RWMutex
	certs map[string]*tls.Certificate
}

func (s *certStore) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	s.mu.RLock()
	cert := s.certs[host]
	s.mu.RUnlock()
	if cert != nil {
		return cert, nil
	}
	cert, err := gen()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.certs[host] = cert
	s.mu.Unlock()
	return cert, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	trust := flag.String("trust", "", "PEM file of the CA that signs origins")
	mitm := flag.Bool("mitm", false, "intercept TLS")
	flag.Parse()

	proxy := goproxy.NewProxyHttpServer()
	proxy.CertStore = &certStore{certs: map[string]*tls.Certificate{}}
	proxy.Tr.MaxIdleConnsPerHost = 1024
	if *trust != "" {
		pem, err := os.ReadFile(*trust)
		if err != nil {
			log.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		proxy.Tr.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	if *mitm {
		proxy.OnRequest().HandleConnect(goproxy.AlwaysMitm)
	}
	log.Fatal(http.ListenAndServe(*listen, proxy))
}

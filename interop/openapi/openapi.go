// Package openapi is a client as oapi-codegen generates it from orders.yaml.
package openapi

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config config.yaml orders.yaml

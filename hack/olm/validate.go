package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/operator-framework/operator-registry/pkg/lib/config"
	"github.com/sirupsen/logrus"
)

// What `operator-sdk bundle validate --select-optional suite=operatorframework` and `opm validate` check. A warning is an error here.
func validate(folder string) error {
	layout := bundle.NewImageValidator(nil, logrus.NewEntry(logrus.StandardLogger())) // without a registry: it pulls nothing
	root := filepath.Join(folder, "bundle")
	problems := []error{
		layout.ValidateBundleFormat(root),
		layout.ValidateBundleContent(filepath.Join(root, "manifests")),
	}
	found, err := manifests.GetBundleFromDir(root)
	if err != nil {
		return errors.Join(append(problems, err)...)
	}
	objects := found.ObjectsToValidate()
	for _, object := range found.Objects {
		objects = append(objects, object)
	}
	objects = append(objects, map[string]string{"k8s-version": found.CSV.Spec.MinKubeVersion})
	validators := append(validation.DefaultBundleValidators,
		validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator, validation.StandardCategoriesValidator,
		validation.ObjectValidator, validation.GoodPracticesValidator, validation.AlphaDeprecatedAPIsValidator)
	for _, result := range validators.Validate(objects...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			problems = append(problems, fmt.Errorf("%s: %w", result.Name, problem))
		}
	}
	problems = append(problems, config.Validate(context.Background(), os.DirFS(filepath.Join(folder, "catalog"))))
	return errors.Join(problems...)
}

<?php
// As in the official image, everything that differs between installations comes from the environment.
function from_environment($name, $default) {
    $value = getenv($name);
    return $value === false ? $default : $value;
}
define('DB_HOST', from_environment('WORDPRESS_DB_HOST', 'mysql'));
define('DB_NAME', from_environment('WORDPRESS_DB_NAME', 'wordpress'));
define('DB_USER', from_environment('WORDPRESS_DB_USER', 'wordpress'));
define('DB_PASSWORD', from_environment('WORDPRESS_DB_PASSWORD', ''));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define($name . '_KEY', hash('sha256', $name . 'key' . DB_PASSWORD));
    define($name . '_SALT', hash('sha256', $name . 'salt' . DB_PASSWORD));
}
$table_prefix = 'wp_';
// The lab has no internet.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
